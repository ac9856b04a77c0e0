"""Opens pages of the site of the documentation in headless Chromium, from its files, in the light and the dark theme.

Usage: site_browser.py FOLDER
Checks the console, the colours, the switch of themes, a search and a copy button. Prints "site in a browser: N checks,
0 failed".
"""
import pathlib
import sys

from selenium.webdriver.common.by import By

from browser import Checks, open_driver, wait

PAGES = ["index", "overview", "tutorial", "install", "benchmarks", "training", "onnx", "design", "ops", "headers/graph.h"]
check = Checks()


def colours(driver):
    """The brightness, 0 to 255, of the ground and the text."""
    return driver.execute_script("""
        const of = (text) => { const [r, g, b] = text.match(/[0-9.]+/g).map(Number); return 0.3 * r + 0.6 * g + 0.1 * b; };
        const style = getComputedStyle(document.body);
        return [of(style.backgroundColor), of(getComputedStyle(document.querySelector('article p, article li')).color)];""")


def console(driver, where):
    for entry in driver.get_log("browser"):
        check(entry["level"] not in ("SEVERE", "WARNING"), f"{where}: the console says: {entry['message'][:200]}")


def open_page(driver, folder, name):
    driver.get((folder / f"{name}.html").as_uri())
    return driver.execute_script("return document.documentElement.scrollWidth - innerWidth")


def theme(driver, folder, scheme):
    dark = scheme == "dark"
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    for name in PAGES:
        open_page(driver, folder, name)
        ground, text = colours(driver)
        check((ground < 64 and text > 128) if dark else (ground > 192 and text < 128),
              f"{name}: the {scheme} theme has a ground of {ground:.0f} and text of {text:.0f}")
        console(driver, f"{name}, {scheme}")
    for width in (390, 1400):
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                               {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
        for name in PAGES:
            over = open_page(driver, folder, name)
            check(over <= 0, f"{name}: is {over} wider than a window of {width}")


def switch(driver, folder):
    """The button shows the other theme, then that again, and then what the system asks for. Other pages keep it."""
    open_page(driver, folder, "index")
    button = driver.find_element(By.CSS_SELECTOR, ".theme-toggle-content .theme-toggle")
    check(button.is_displayed(), "the switch of themes is in sight")
    grounds = [colours(driver)[0] > 128]
    for _ in range(3):
        driver.execute_script("arguments[0].click()", button)
        grounds.append(colours(driver)[0] > 128)
    check(grounds[0] != grounds[1] and grounds[0] == grounds[2] == grounds[3], f"the button shows light themes: {grounds}")
    driver.execute_script("arguments[0].click()", button)
    open_page(driver, folder, "tutorial")
    check((colours(driver)[0] > 128) == grounds[1], "another page has the chosen theme")
    driver.execute_script("localStorage.clear()")


def search_and_copy(driver, folder):
    driver.get((folder / "search.html").as_uri() + "?q=barrier")
    check(wait(lambda: len(driver.find_elements(By.CSS_SELECTOR, "#search-results li")) > 2), "a search finds pages")
    console(driver, "search")
    open_page(driver, folder, "install")
    button = driver.find_element(By.CSS_SELECTOR, "button.copybtn")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].click()", button)
    check(wait(lambda: "success" in button.get_attribute("class")), "a copy button copies")
    console(driver, "copy")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    driver = open_driver("browser")
    try:
        theme(driver, folder, "dark")
        theme(driver, folder, "light")
        switch(driver, folder)
        search_and_copy(driver, folder)
    finally:
        driver.quit()
    return check.summary("site in a browser")


sys.exit(main())
