/* Messages of the program: usage errors, failures and lines with names in them. A message is one
 * line of printable characters, whatever bytes a name has. */
#include "tool.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Bytes of a message with its path. Longer texts are cut. */
#define LINE_BYTES 8192

const char *tool_printable(const char *text, char buffer[TOOL_NAME_BYTES])
{
    return text_printable(buffer, TOOL_NAME_BYTES, text);
}

static void print_line(FILE *file, const char *text)
{
    char shown[4 * LINE_BYTES];
    fprintf(file, "%s\n", text_printable(shown, sizeof shown, text));
}

void tool_print_line(FILE *file, const char *format, ...)
{
    char text[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    print_line(file, text);
}

int tool_width(void)
{
    const char *text = getenv("COLUMNS");
    struct winsize size;
    long width = text ? strtol(text, NULL, 10) : 0;
    if (width <= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) width = size.ws_col;
    return width <= 0 ? 80 : width < 32 ? 32 : width > 1000 ? 1000 : (int)width;
}

/* ---- Failures ---- */

/* Set by tool_fail_as; one process has rank 0. */
static int own_rank;
static FILE *failures;
static bool silent;

void tool_fail_as(int rank, FILE *file)
{
    own_rank = rank;
    failures = file;
}

bool tool_failed_silently(void)
{
    return silent;
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
    silent = another_prints(error);
    if (silent) return EXIT_ERROR;
    return tool_fail_text(error->where, "%s",
                          error->message[0] ? error->message : weft_status_text(error->status));
}

int tool_fail_text(const char *where, const char *format, ...)
{
    char text[LINE_BYTES], what[1024], rank[32] = "";
    va_list arguments;
    va_start(arguments, format);
    text_vformat(what, sizeof what, format, arguments);
    va_end(arguments);
    if (own_rank) snprintf(rank, sizeof rank, "rank %d: ", own_rank);
    text_format(text, sizeof text, "weft: %s%s%s%s", rank, where, where[0] ? ": " : "", what);
    print_line(failures ? failures : stderr, text);
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

void tool_usage_error(struct argp_state *state, const char *format, ...)
{
    char text[LINE_BYTES], shown[4 * LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    argp_error(state, "%s", text_printable(shown, sizeof shown, text));
    exit(EXIT_USAGE);
}
