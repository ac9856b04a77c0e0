/* What a Cortex-M4 needs to run device.c under qemu-system-arm (machine mps2-an386): the vector table,
 * the way from reset to main, and what newlib's printf and fopen call, by semihosting: files are those of
 * the computer. */
#include <stdint.h>
#include <stddef.h>
#include <string.h>

extern uint32_t stack_top, data_source, data_begin, data_end, bss_begin, bss_end;
int main(void);

/* Asks the debugger, here QEMU: Arm's semihosting interface. */
static int semihost(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

/* Files are for writing. Their numbers follow those of standard input, output and error. */
int _open(const char *name, int flags, int mode)
{
    const uintptr_t arguments[] = {(uintptr_t)name, 5 /* "wb" */, strlen(name)};
    const int handle = semihost(1 /* SYS_OPEN */, arguments);
    (void)flags;
    (void)mode;
    return handle < 0 ? -1 : handle + 3;
}

int _close(int file)
{
    const int handle = file - 3;
    return file < 3 ? 0 : semihost(2 /* SYS_CLOSE */, &handle);
}

int _write(int file, const char *text, int n)
{
    const uintptr_t arguments[] = {(uintptr_t)(file - 3), (uintptr_t)text, (uintptr_t)n};
    if (file >= 3) return n - semihost(5 /* SYS_WRITE */, arguments);
    for (int i = 0; i < n; i++) semihost(3 /* SYS_WRITEC */, text + i);
    return n;
}

void *_sbrk(ptrdiff_t bytes)
{
    static char heap[4096]; /* for printf's and fopen's buffers */
    static size_t used;
    char *old = heap + used;
    if (used + (size_t)bytes > sizeof heap) return (void *)-1;
    used += (size_t)bytes;
    return old;
}

void reset(void)
{
    *(volatile uint32_t *)0xe000ed88 |= 0xfu << 20; /* the floating-point unit is on */
    for (uint32_t *from = &data_source, *to = &data_begin; to < &data_end;) *to++ = *from++;
    for (uint32_t *to = &bss_begin; to < &bss_end;) *to++ = 0;
    const int status = main();
    semihost(0x18 /* SYS_EXIT */, (const void *)(status ? 0x20023 : 0x20026));
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {&stack_top,
                                                                                 (void *)reset};
