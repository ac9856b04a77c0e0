"""Headless Chromium for tests: a driver, and checks that are counted."""
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service


class Checks:
    """Counts checks, and prints those that fail."""

    def __init__(self):
        self.count, self.failures = 0, 0

    def __call__(self, good, what):
        self.count += 1
        if not good:
            self.failures += 1
            print(f"failed: {what}")

    def summary(self, what):
        """Prints the counts; returns whether a check has failed."""
        print(f"{what}: {self.count} checks, {self.failures} failed")
        return self.failures > 0


def open_driver(*logs):
    """A driver that records the named logs, such as "browser"."""
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {log: "ALL" for log in logs})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


def wait(holds):
    """Waits for up to 20 seconds, which is far more than any action takes; returns whether it holds."""
    end = time.monotonic() + 20
    while not (good := bool(holds())) and time.monotonic() < end:
        time.sleep(0.05)
    return good
