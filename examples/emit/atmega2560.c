/* What an ATmega2560 needs to run device.c: printf writes to the first serial port, and the processor sleeps at
 * the end, where a simulator stops. */
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
#include <stdio.h>

static int put(char c, FILE *file)
{
    (void)file;
    while (!(UCSR0A & 1 << UDRE0)) {
    }
    UDR0 = (uint8_t)c;
    return 0;
}

static FILE serial = FDEV_SETUP_STREAM(put, NULL, _FDEV_SETUP_WRITE);

__attribute__((constructor)) static void begin(void)
{
    UCSR0B = 1 << TXEN0;
    stdout = &serial;
}

__attribute__((destructor)) static void end(void)
{
    cli();
    sleep_enable();
    sleep_cpu();
}
