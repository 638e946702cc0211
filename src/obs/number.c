/* number.c: numbers as text: see number.h. */
#include "number.h"

#include <stdio.h>
#include <string.h>

enum { DIGITS = 39 }; /* of a number of 128 bits */

/* Decimal digits: printf() has no format for 128 bits. */
static void put_digits(kb_u128 number, char text[DIGITS + 1])
{
    char reversed[DIGITS];
    size_t count = 0;
    do {
        reversed[count++] = (char)('0' + (int)(number % 10));
        number /= 10;
    } while (number > 0);
    for (size_t i = 0; i < count; i++)
        text[i] = reversed[count - 1 - i];
    text[count] = '\0';
}

obs_number obs_ns(kb_time_sum time_fs)
{
    obs_number number;
    char digits[DIGITS + 1];
    kb_time_sum ps = time_fs / KB_PS + (time_fs % KB_PS >= KB_PS / 2);
    put_digits((kb_u128)(ps / 1000), digits);
    snprintf(number.text, sizeof number.text, "%s.%03d", digits, (int)(ps % 1000));
    return number;
}

obs_number obs_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    static const char *const eighths[] = {"", ".125", ".25", ".375", ".5", ".625", ".75", ".875"};
    /* The largest unit in which it is a multiple of 1/8: exact with three decimals. */
    size_t unit = sizeof units / sizeof units[0] - 1;
    while (unit > 0 && (bytes >> 10 * unit == 0 || bytes % ((uint64_t)1 << (10 * unit - 3)) != 0))
        unit--;
    uint64_t one = (uint64_t)1 << 10 * unit;
    obs_number number;
    snprintf(number.text, sizeof number.text, "%llu%s %s", (unsigned long long)(bytes / one),
             eighths[bytes % one * 8 / one], units[unit]);
    return number;
}

obs_number obs_rate(uint64_t bytes_per_s)
{
    enum { DECIMALS = 9 };
    obs_number number;
    snprintf(number.text, sizeof number.text, "%llu.%0*llu",
             (unsigned long long)(bytes_per_s / 1000000000), DECIMALS,
             (unsigned long long)(bytes_per_s % 1000000000));
    char *end = number.text + strlen(number.text);
    while (end[-1] == '0')
        end--;
    if (end[-1] == '.')
        end--;
    *end = '\0';
    return number;
}

obs_number obs_gbs(double gbs)
{
    obs_number number;
    snprintf(number.text, sizeof number.text, "%.*f", gbs < 1000 ? 2 : 1, gbs);
    return number;
}

obs_number obs_percent(double share)
{
    obs_number number;
    snprintf(number.text, sizeof number.text, "%.1f", 100 * share);
    return number;
}

obs_number obs_count(kb_u128 count)
{
    char digits[DIGITS + 1];
    put_digits(count, digits);
    size_t length = strlen(digits);
    obs_number number;
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            number.text[at++] = ',';
        number.text[at++] = digits[i];
    }
    number.text[at] = '\0';
    return number;
}

double obs_bandwidth(uint64_t bytes, kb_time time_fs)
{
    return time_fs > 0 ? (double)bytes / ((double)time_fs / (double)KB_NS) : 0;
}
