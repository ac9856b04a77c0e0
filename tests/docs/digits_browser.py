"""Opens the page of docs/browser in headless Chromium, trains its network, and draws a digit.

Usage: digits_browser.py digits.html EXPECTED [PICTURE.png]
EXPECTED is what the program of docs/browser/native.c prints: the page must show the same losses, accuracies and hashes
after the same steps. PICTURE becomes a picture of the page after that.
Prints "browser: N checks, 0 failed".
"""
import pathlib
import re
import sys

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from browser import Checks, open_driver, wait

check = Checks()


class Page:
    def __init__(self, driver, path):
        self.driver = driver
        driver.get(pathlib.Path(path).resolve().as_uri())
        check(wait(lambda: self.data("ready") == "true"), "the page is ready")

    def data(self, name):
        return self.driver.execute_script("return document.documentElement.dataset[arguments[0]]", name)

    def press(self, name):
        self.driver.find_element(By.ID, name).click()

    def rows(self):
        return [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")]
                for row in self.driver.find_elements(By.CSS_SELECTOR, "#rows tr")]

    def train(self, steps):
        """Trains until at least this many steps are done; a slow machine needs minutes."""
        self.press("train")
        for _ in range(9):
            if wait(lambda: int(self.data("step")) >= steps):
                break
        if int(self.data("step")) < 1000:
            self.press("train")
        check(int(self.data("step")) >= steps, f"{steps} steps are done; the page is at {self.data('step')}")

    def best(self):
        """The digit with the largest bar, and the sum of all bars in percent."""
        numbers = [float(e.text.split()[0]) for e in self.driver.find_elements(By.CSS_SELECTOR, "#bars span")]
        return numbers.index(max(numbers)), sum(numbers)

    def draw(self, points):
        """Draws one stroke, in pixels from the middle of the field."""
        field = self.driver.find_element(By.ID, "drawing")
        actions = ActionChains(self.driver).move_to_element_with_offset(field, *points[0]).click_and_hold()
        for before, after in zip(points, points[1:]):
            actions.move_by_offset(after[0] - before[0], after[1] - before[1])
        actions.release().perform()


def trained(page, expected):
    page.train(100 * len(expected))
    rows = page.rows()
    check(len(rows) >= len(expected), f"{len(rows)} rows, expected {len(expected)}")
    for row, (step, loss, accuracy, digest) in zip(rows, expected):
        wanted = [step, f"{float(loss):.6f}", f"{100 * float(accuracy):.2f} %", digest, "the same"]
        check(row == wanted, f"a row is {row}, expected {wanted}")


def main():
    expected = re.findall(r"step (\d+) loss (\S+) accuracy (\S+) hash (\w+)", pathlib.Path(sys.argv[2]).read_text("utf-8"))
    check(expected, f"{sys.argv[2]} has lines with losses")
    driver = open_driver("browser")
    try:
        page = Page(driver, sys.argv[1])
        trained(page, expected)
        page.draw([(0, -70), (2, 70)])
        digit, whole = page.best()
        check(digit == 1, f"a vertical stroke is read as {digit}")
        check(abs(whole - 100) < 1, f"the bars add up to {whole} %")
        page.press("clear")
        page.draw([(-50, -70), (50, -70), (10, 0), (-20, 70)])
        check(page.best()[0] == 7, f"a seven is read as {page.best()[0]}")
        if len(sys.argv) > 3:
            driver.set_window_size(1240, 1090)
            driver.execute_script("scrollTo(0, 0)")
            driver.save_screenshot(sys.argv[3])
        page.press("again")
        check(wait(lambda: page.data("step") == "0"), "it begins again")
        trained(page, expected[:1])
        errors = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
        check(not errors, f"the console has errors: {errors[:2]}")
    finally:
        driver.quit()
    sys.exit(check.summary("browser"))


main()
