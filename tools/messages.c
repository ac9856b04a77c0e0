/* Messages of the program: usage errors, failures and lines with names in them. A message is one
 * line of printable characters, whatever bytes a name has. */
#include "tool.h"

#include "base/text.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a message with its path. From the middle of longer texts, bytes are left out. */
#define LINE_BYTES 8192

const char *tool_printable(const char *text, char buffer[TOOL_NAME_BYTES])
{
    return weft__text_printable(buffer, TOOL_NAME_BYTES, text);
}

/* Formats a line. A long one is cut in the middle, since the long part is a name. Without memory,
 * the end is cut. */
static void format_line(char line[LINE_BYTES], const char *format, va_list arguments)
{
    static const char gap[] = " ... ";
    enum { HALF = (LINE_BYTES - sizeof gap) / 2 };
    va_list again;
    va_copy(again, arguments);
    const int n = weft__text_vformat(line, LINE_BYTES, format, arguments);
    char *whole = n >= LINE_BYTES ? malloc((size_t)n + 1) : NULL;
    if (whole) {
        weft__text_vformat(whole, (size_t)n + 1, format, again);
        const char *end = whole + n - HALF;
        while (((unsigned char)*end & 0xC0) == 0x80) end++;
        weft__text_format(line, HALF + 1, "%s", whole);
        snprintf(line + strlen(line), HALF + sizeof gap, "%s%s", gap, end);
    }
    free(whole);
    va_end(again);
}

static void print_line(FILE *file, const char *text)
{
    char shown[4 * LINE_BYTES];
    fprintf(file, "%s\n", weft__text_printable(shown, sizeof shown, text));
}

void tool_print_line(FILE *file, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_line(text, format, arguments);
    va_end(arguments);
    print_line(file, text);
}

int tool_width(void)
{
    const char *text = getenv("COLUMNS");
    long width = text ? strtol(text, NULL, 10) : 0;
    if (width <= 0) width = system_columns(stdout);
    return width <= 0 ? 80 : width < 32 ? 32 : width > 1000 ? 1000 : (int)width;
}

/* ---- Failures ---- */

/* Set by tool_fail_as; one process has rank 0. */
static int own_rank;
static FILE *failures;
/* The last failure is one that another rank prints. */
static bool of_another;

bool tool_failed_by_another(void)
{
    return of_another;
}

void tool_fail_as(int rank, FILE *file)
{
    own_rank = rank;
    failures = file;
}

/* Whether another rank prints this error: "rank 2: WHERE: MESSAGE" is one of rank 2's. What all
 * ranks find of one of them, such as "rank 2 does not answer", is printed by rank 0. */
static bool another_prints(const weft_error *error)
{
    const char *text = error->message;
    if (error->status != WEFT_PEER || strncmp(text, "rank ", 5) != 0) return false;
    text += 5 + strspn(text + 5, "0123456789");
    return own_rank || *text == ':';
}

int tool_fail(const weft_error *error)
{
    if (another_prints(error)) {
        of_another = true;
        return EXIT_ERROR;
    }
    return tool_fail_text(error->where, "%s",
                          error->message[0] ? error->message : weft_status_text(error->status));
}

static void print_failure(const char *format, ...) WEFT_PRINTF(1, 2);
static void print_failure(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_line(line, format, arguments);
    va_end(arguments);
    print_line(failures ? failures : stderr, line);
}

int tool_fail_text(const char *where, const char *format, ...)
{
    char what[LINE_BYTES], rank[32] = "";
    of_another = false;
    va_list arguments;
    va_start(arguments, format);
    format_line(what, format, arguments);
    va_end(arguments);
    if (own_rank) snprintf(rank, sizeof rank, "rank %d: ", own_rank);
    print_failure("weft: %s%s%s%s", rank, where, where[0] ? ": " : "", what);
    return EXIT_ERROR;
}

weft_status tool_take_error(const weft_error *from, weft_error *error)
{
    if (from->status == WEFT_OK) return WEFT_OK;
    return weft_error_set(error, from->status, from->where, "%s", from->message);
}

void tool_append(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* ---- The command line ---- */

void tool_usage_error(const tool_parser *parser, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_line(text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: ", parser->command);
    print_line(stderr, text);
    fprintf(stderr, "Try `%s --help' or `%s --usage' for more information.\n", parser->command,
            parser->command);
    exit(EXIT_USAGE);
}
