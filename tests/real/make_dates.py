#!/usr/bin/env python3
"""Prints COUNT conversations in JSON Lines in which a date in words becomes one of ISO 8601.

    make_dates.py COUNT SEED

The dates of seed 1 and of seed 2 differ: even days are those of even seeds."""
import datetime
import json
import random
import sys

FORMS = ("%B {day}, %Y", "{day} %B %Y", "%A, {day} %B %Y", "the {day}{th} of %B, %Y", "%b. {day}, %Y")


def ending(day):
    return "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    first = datetime.date(1900, 1, 1)
    for _ in range(count):
        date = first + datetime.timedelta(days=2 * draw.randrange(25000) + seed % 2)
        text = date.strftime(draw.choice(FORMS)).format(day=date.day, th=ending(date.day))
        messages = [{"role": "user", "content": f"Write as ISO date: {text}"},
                    {"role": "assistant", "content": date.isoformat()}]
        print(json.dumps({"messages": messages}))


main()
