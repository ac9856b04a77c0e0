/* strftime_now, with English names in every locale. */
#include "chat/template.h"

#include <string.h>
#include <time.h>

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days before a month of a year. */
static int days_before(int year, int month)
{
    static const int days[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    return days[month] + (month > 1 && is_leap(year));
}

/* Reads `n` digits at *at and moves after them, and after `then` if it is there. */
static bool read_digits(const char **at, int n, char then, int *value)
{
    *value = 0;
    for (int i = 0; i < n; i++, ++*at) {
        if (**at < '0' || **at > '9') return false;
        *value = 10 * *value + (**at - '0');
    }
    if (then && **at != then) return false;
    *at += then != 0;
    return true;
}

/* Reads "2025-01-31" or "2025-01-31T12:34:56". */
static bool read_date(const char *text, struct tm *date)
{
    *date = (struct tm){0};
    if (!read_digits(&text, 4, '-', &date->tm_year) || !read_digits(&text, 2, '-', &date->tm_mon) ||
        !read_digits(&text, 2, 0, &date->tm_mday))
        return false;
    if (*text == 'T' && (text++, !read_digits(&text, 2, ':', &date->tm_hour) ||
                                     !read_digits(&text, 2, ':', &date->tm_min) ||
                                     !read_digits(&text, 2, 0, &date->tm_sec)))
        return false;
    const int year = date->tm_year, month = date->tm_mon - 1;
    if (*text || year < 1 || month < 0 || month > 11 || date->tm_mday < 1 || date->tm_hour > 23 ||
        date->tm_min > 59 || date->tm_sec > 60 ||
        date->tm_mday > days_before(year, month + 1) - days_before(year, month))
        return false;
    date->tm_yday = days_before(year, month) + date->tm_mday - 1;
    /* 1 January of the year 1 was a Monday. */
    const int past = year - 1;
    date->tm_wday = (1 + past * 365 + past / 4 - past / 100 + past / 400 + date->tm_yday) % 7;
    date->tm_year -= 1900;
    date->tm_mon = month;
    return true;
}

static const char *const weekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

static void put_name(ct_buffer *b, const char *name, bool is_short)
{
    weft__ct_put(b, name, is_short ? 3 : strlen(name));
}

/* A number of `width` digits, filled with zeros, spaces, or nothing. */
static void put_number(ct_buffer *b, int n, int width, char fill)
{
    char text[16];
    snprintf(text, sizeof text, fill == '0' ? "%0*d" : "%*d", fill == '-' ? 1 : width, n);
    weft__ct_put_text(b, text);
}

/* A directive; `fill` is the character before its letter, or 0. */
static bool put_directive(ct_buffer *b, const struct tm *d, char kind, char fill);

static bool put_several(ct_buffer *b, const struct tm *d, const char *kinds)
{
    for (; *kinds; kinds++)
        if (!strchr("/:-", *kinds))
            put_directive(b, d, *kinds, 0);
        else
            weft__ct_put(b, kinds, 1);
    return true;
}

static bool put_directive(ct_buffer *b, const struct tm *d, char kind, char fill)
{
    const char zero = fill ? fill : '0';
    const int half = d->tm_hour % 12 ? d->tm_hour % 12 : 12;
    switch (kind) {
    case 'a':
    case 'A':
        return put_name(b, weekdays[d->tm_wday], kind == 'a'), true;
    case 'b':
    case 'h':
    case 'B':
        return put_name(b, months[d->tm_mon], kind != 'B'), true;
    case 'd':
        return put_number(b, d->tm_mday, 2, zero), true;
    case 'e':
        return put_number(b, d->tm_mday, 2, fill ? fill : ' '), true;
    case 'm':
        return put_number(b, d->tm_mon + 1, 2, zero), true;
    case 'y':
        return put_number(b, d->tm_year % 100 < 0 ? d->tm_year % 100 + 100 : d->tm_year % 100, 2,
                          zero),
               true;
    case 'Y':
        return put_number(b, d->tm_year + 1900, 1, zero), true;
    case 'H':
        return put_number(b, d->tm_hour, 2, zero), true;
    case 'I':
        return put_number(b, half, 2, zero), true;
    case 'M':
        return put_number(b, d->tm_min, 2, zero), true;
    case 'S':
        return put_number(b, d->tm_sec, 2, zero), true;
    case 'j':
        return put_number(b, d->tm_yday + 1, 3, zero), true;
    case 'p':
        return weft__ct_put_text(b, d->tm_hour < 12 ? "AM" : "PM"), true;
    case 'u':
        return put_number(b, d->tm_wday ? d->tm_wday : 7, 1, zero), true;
    case 'w':
        return put_number(b, d->tm_wday, 1, zero), true;
    case 'D':
        return put_several(b, d, "m/d/y");
    case 'F':
        return put_several(b, d, "Y-m-d");
    case 'R':
        return put_several(b, d, "H:M");
    case 'T':
        return put_several(b, d, "H:M:S");
    case '%':
        return weft__ct_put_text(b, "%"), true;
    default:
        return false;
    }
}

ct_value weft__ct_strftime(ct_render *r, const ct_value *format)
{
    const char *given = r->options->date;
    const time_t now = time(NULL);
    struct tm date;
    ct_buffer b = weft__ct_buffer();
    if (given ? !read_date(given, &date) : !localtime_r(&now, &date))
        return weft__ct_fail(r, WEFT_BAD_ARGUMENT,
                             "the date '%.40s' is not like 2025-01-31 or 2025-01-31T12:34:56",
                             given ? given : "now");
    for (size_t i = 0; i < format->n && weft__ct_work(r, 0); i++) {
        const char c = format->as.text[i];
        if (c != '%') {
            weft__ct_put(&b, &c, 1);
            continue;
        }
        const char fill = i + 2 < format->n && format->as.text[i + 1] == '-' ? '-' : 0;
        i += 1 + (fill != 0);
        const char kind = i < format->n ? format->as.text[i] : 0;
        if (!put_directive(&b, &date, kind, fill))
            weft__ct_fail(r, WEFT_BAD_FILE, "strftime_now does not support %%%c",
                          kind > ' ' && kind < 127 ? kind : '?');
    }
    return weft__ct_take(r, &b);
}
