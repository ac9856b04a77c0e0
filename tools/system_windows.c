/* Streams, terminals, interrupts, other programs and memory on Windows: see system.h. */
#include "base/platform_windows.h"

#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <limits.h>
#include <math.h>
#include <psapi.h>
#include <shellapi.h>
#include <signal.h>
#include <stdlib.h>

/* ---- The process ---- */

/* The arguments in UTF-8, which last as long as the program; NULL without memory. */
static char **make_arguments(int *argc)
{
    WCHAR **wide = CommandLineToArgvW(GetCommandLineW(), argc);
    char **argv = wide ? calloc((size_t)*argc + 1, sizeof *argv) : NULL;
    for (int i = 0; argv && i < *argc; i++) {
        const int bytes = WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, NULL, 0, NULL, NULL);
        argv[i] = malloc((size_t)bytes + 1);
        if (!argv[i]) return NULL;
        WideCharToMultiByte(CP_UTF8, 0, wide[i], -1, argv[i], bytes, NULL, NULL);
    }
    LocalFree(wide);
    return argv;
}

static UINT code_page_before;

static void restore_code_page(void)
{
    SetConsoleOutputCP(code_page_before);
}

/* The linker gives programs of MinGW-w64 2 MiB of stack, which is enough. */
int system_run(int (*run)(int argc, char **argv), int argc, char **argv)
{
    char **made = make_arguments(&argc);
    _fmode = _O_BINARY;
    for (int i = 0; i < 3; i++) _setmode(i, _O_BINARY);
    code_page_before = GetConsoleOutputCP();
    if (code_page_before && SetConsoleOutputCP(CP_UTF8)) atexit(restore_code_page);
    return run(argc, made ? made : argv);
}

/* A descriptor without a handle (-2) is taken, so no file becomes one of them. */
bool system_open_streams(void)
{
    return true;
}

void system_limit_files(void) {}

static void (*take_signal)(int number);

/* Runs on a thread of its own. The system ends the program when it returns, or after 5 s, unless the
 * event was Ctrl-C or Ctrl-Break. */
static BOOL WINAPI take_event(DWORD event)
{
    static volatile LONG events;
    if (InterlockedIncrement(&events) > 1) return FALSE; /* the second one ends the program */
    const bool pressed = event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
    take_signal(pressed ? SIGINT : SIGTERM);
    if (!pressed) Sleep(INFINITE);
    return TRUE;
}

void system_take_signals(void (*take)(int number), bool launched)
{
    (void)launched;
    take_signal = take;
    SetConsoleCtrlHandler(take_event, TRUE);
}

static void (*volatile take_interrupt)(int number);

static BOOL WINAPI take_break(DWORD event)
{
    void (*const take)(int number) = take_interrupt;
    if (!take || (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT)) return FALSE;
    take(SIGINT);
    return TRUE;
}

void system_take_interrupt(void (*take)(int number))
{
    static bool added;
    take_interrupt = take;
    if (take && !added) added = SetConsoleCtrlHandler(take_break, TRUE);
}

/* ---- Memory ---- */

double system_memory_available(void)
{
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    if (!GlobalMemoryStatusEx(&memory)) return NAN;
    return fmin((double)memory.ullAvailPhys,
                fmin((double)memory.ullAvailPageFile, (double)memory.ullAvailVirtual));
}

double system_memory_peak(void)
{
    PROCESS_MEMORY_COUNTERS counters = {.cb = sizeof counters};
    if (!GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters)) return NAN;
    return (double)counters.PeakWorkingSetSize;
}

/* Windows does not forget it. */
void system_forget_peak(void) {}

/* ---- Streams ---- */

/* Lines that update themselves need the sequences of terminals, which the console has since 2016. */
bool system_is_terminal(FILE *file)
{
    const HANDLE handle = weft__windows_handle(_fileno(file));
    DWORD mode;
    if (!GetConsoleMode(handle, &mode)) return false;
    return file == stdin || SetConsoleMode(handle, mode | ENABLE_PROCESSED_OUTPUT |
                                                       ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

int system_columns(FILE *file)
{
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(weft__windows_handle(_fileno(file)), &info)) return 0;
    return info.srWindow.Right - info.srWindow.Left + 1;
}

int system_unnamed_file(void)
{
    wide_path folder, path;
    const DWORD n = GetTempPathW(PATH_UNITS - 64, folder);
    if (!n || n >= PATH_UNITS - 64 || !GetTempFileNameW(folder, L"weft", 0, path)) {
        weft__windows_set_errno();
        return -1;
    }
    const HANDLE handle =
        CreateFileW(path, GENERIC_READ | GENERIC_WRITE | DELETE, FILE_SHARE_DELETE, NULL,
                    CREATE_ALWAYS, FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    if (handle == INVALID_HANDLE_VALUE) weft__windows_set_errno();
    return weft__windows_descriptor(handle, _O_RDWR);
}

int system_open_input(const char *path)
{
    return strcmp(path, "-") != 0 ? weft__os_open(path) : weft__os_duplicate(_fileno(stdin));
}

/* Copies all that a source has to a file; false with errno set on failure. */
static bool copy_source(const stream_source *source, int to)
{
    char block[65536];
    ptrdiff_t n;
    while ((n = source->read(source->context, block, sizeof block)) > 0)
        for (ptrdiff_t done = 0, written; done < n; done += written) {
            written = weft__os_write(to, block + done, (size_t)(n - done));
            if (written <= 0) return false;
        }
    return n == 0 && _lseeki64(to, 0, SEEK_SET) == 0;
}

/* The C library has no streams of functions: the bytes are copied to a file first. */
FILE *system_open_source(const stream_source *source)
{
    const int to = system_unnamed_file();
    bool good = to >= 0 && copy_source(source, to);
    const int problem = errno;
    good = source->close(source->context) == 0 && good;
    FILE *file = good ? _fdopen(to, "rb") : NULL;
    if (!file && to >= 0) weft__os_close(to);
    if (!good && problem) errno = problem;
    return file;
}

bool text_stream_open(text_stream *s)
{
    *s = (text_stream){0};
    const int descriptor = system_unnamed_file();
    if (descriptor < 0) return false;
    s->file = _fdopen(descriptor, "w+b");
    if (!s->file) weft__os_close(descriptor);
    return s->file != NULL;
}

bool text_stream_close(text_stream *s)
{
    const bool good = fflush(s->file) == 0 && !ferror(s->file);
    const int64_t bytes = good ? _ftelli64(s->file) : -1;
    s->text = bytes >= 0 ? malloc((size_t)bytes + 1) : NULL;
    rewind(s->file);
    s->bytes = s->text ? fread(s->text, 1, (size_t)bytes, s->file) : 0;
    if (s->text) s->text[s->bytes] = 0;
    fclose(s->file);
    return s->text && (int64_t)s->bytes == bytes;
}

/* ---- Other programs ---- */

/* A pipe, whose end `inherited` (0: to read) another program may have; false with errno set on
 * failure. */
static bool make_pipe(HANDLE pipe[2], int inherited)
{
    if (!CreatePipe(&pipe[0], &pipe[1], NULL, 0)) {
        weft__windows_set_errno();
        return false;
    }
    return SetHandleInformation(pipe[inherited], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
}

/* Starts a program with these handles; NULL with errno set on failure. */
static HANDLE spawn(const char *program, HANDLE in, HANDLE out)
{
    SECURITY_ATTRIBUTES inherit = {.nLength = sizeof inherit, .bInheritHandle = TRUE};
    const HANDLE nowhere = CreateFileW(L"NUL", GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                       &inherit, OPEN_EXISTING, 0, NULL);
    STARTUPINFOW start = {.cb = sizeof start,
                          .dwFlags = STARTF_USESTDHANDLES,
                          .hStdInput = in,
                          .hStdOutput = out,
                          .hStdError = nowhere};
    PROCESS_INFORMATION process;
    wide_path command;
    const bool started =
        weft__windows_widen(program, command) &&
        CreateProcessW(NULL, command, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process);
    if (!started) weft__windows_set_errno();
    if (nowhere != INVALID_HANDLE_VALUE) CloseHandle(nowhere);
    if (!started) return NULL;
    CloseHandle(process.hThread);
    return process.hProcess;
}

int system_start(system_child *child, const char *program)
{
    HANDLE in[2], out[2];
    if (!make_pipe(in, 0)) return errno;
    if (!make_pipe(out, 1)) {
        CloseHandle(in[0]);
        CloseHandle(in[1]);
        return errno;
    }
    const HANDLE process = spawn(program, in[0], out[1]);
    const int why = process ? 0 : errno;
    CloseHandle(in[0]);
    CloseHandle(out[1]);
    *child = (system_child){weft__windows_descriptor(in[1], _O_WRONLY),
                            weft__windows_descriptor(out[0], _O_RDONLY), (intptr_t)process};
    if (process) return 0;
    weft__os_close(child->to);
    weft__os_close(child->from);
    return why;
}

bool system_send(system_child *child, void (*write)(void *context, FILE *to), void *context)
{
    FILE *to = _fdopen(child->to, "wb");
    if (to) {
        write(context, to);
        return fclose(to) == 0;
    }
    weft__os_close(child->to);
    return false;
}

ptrdiff_t system_receive(const system_child *child, char *buffer, size_t bytes)
{
    return _read(child->from, buffer, bytes < INT_MAX ? (unsigned)bytes : INT_MAX);
}

int system_wait(system_child *child)
{
    DWORD status = 1;
    const HANDLE process = (HANDLE)child->process;
    weft__os_close(child->from);
    WaitForSingleObject(process, INFINITE);
    GetExitCodeProcess(process, &status);
    CloseHandle(process);
    return (int)status;
}
