"""Opens pages of `weft report` in headless Chromium and uses them as a person would.

Usage: report_test.py PAGE.html...    (named model, run, both and file: see report_test.sh)
Prints "browser: N checks, 0 failed".
"""
import pathlib
import sys
import time

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser import Checks, open_driver, wait

WIDTHS = [(390, 844), (820, 1100), (1400, 900)]
check = Checks()


class Page:
    """A page of a report, and what a person does with it."""

    def __init__(self, driver, path):
        self.driver, self.path = driver, pathlib.Path(path).resolve()
        self.name = self.path.stem

    def open(self, section):
        self.driver.get("about:blank")
        self.driver.get(f"{self.path.as_uri()}#{section}")
        self.wait(lambda: self.js("return document.documentElement.dataset.ready") == "true", "is ready")

    def js(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def wait(self, holds, what):
        check(wait(holds), f"{self.name}: {what}")

    def click(self, element):
        self.js("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", element)

    def press(self, text):
        for button in self.all("main button"):
            if button.text.strip() == text:
                button.click()
                return
        check(False, f"{self.name}: there is a button {text}")

    def size(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})

    def fits(self, what):
        """No section is wider than the window."""
        wide, room = self.js("return [document.documentElement.scrollWidth, innerWidth]")
        check(wide <= room, f"{self.name}: {what} is {wide} wide in a window of {room}")

    def looks(self, what):
        """No cell of a grid stands alone in a row of several columns, what a box hides at its sides is announced, and
        bytes have decimal units."""
        alone, silent, binary = self.js("""
            const seen = (e) => e.getClientRects().length > 0, rows = (box) => {
                const tops = new Map();
                for (const cell of [...box.children].filter(seen)) {
                    const at = cell.getBoundingClientRect();
                    tops.set(Math.round(at.top), [...(tops.get(Math.round(at.top)) || []), at.width]);
                }
                return [...tops.values()];
            };
            const alone = [...document.querySelectorAll('.tiles, .parts-list, main .facts:not(.one)')].filter(seen).filter((box) => {
                const all = rows(box);
                return all.some((row) => row.length > 1) && all.some((row) => row.length === 1 && row[0] < box.clientWidth - 1);
            }).map((box) => box.className);
            const silent = [...document.querySelectorAll('main *')].filter(seen).filter((e) => e.scrollWidth > e.clientWidth + 1 &&
                ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.querySelector('table')).filter((e) => {
                    const note = e.parentElement.querySelector('.sideways');
                    return !note || note.hidden || !note.textContent.includes('columns');
                }).map((e) => e.className);
            return [alone, silent, document.body.innerText.match(/[0-9] [KMGT]iB/g) || []];""")
        check(not alone, f"{self.name}: {what}: cells alone in a row: {alone}")
        check(not silent, f"{self.name}: {what}: columns that are out of sight without a hint: {silent}")
        check(not binary, f"{self.name}: {what}: bytes in binary units: {binary[:3]}")

    def painted(self, selector):
        """How many colours a canvas shows."""
        return self.js("""
            const c = document.querySelector(arguments[0]), seen = new Set();
            if (!c || !c.width) return 0;
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            for (let i = 0; i < d.length; i += 4 * 97) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
            return seen.size""", selector)


def sections(page, expected):
    page.open("summary")
    names = [a.text for a in page.all("#tabs a")]
    check(names == expected, f"{page.name}: sections are {names}, expected {expected}")
    for name in names:
        page.js("location.hash = arguments[0]", name.lower())
        page.wait(lambda: page.one("#tabs a[aria-current]").text == name, f"{name} is current")
        page.wait(lambda: page.js("return document.querySelectorAll('main *').length") > 15, f"{name} has content")
        for width, height in WIDTHS:
            page.size(width, height)
            time.sleep(0.15)
            page.fits(f"{name} at {width}")
            page.looks(f"{name} at {width}")
        page.size(*WIDTHS[-1])


def summary(page, has_run):
    page.open("summary")
    said = "largest batch: 2 rows of 96 tokens" in page.one("main").text
    check(said == has_run, f"{page.name}: the batch of a run is {'' if said else 'not '}named")
    labels = [dt.text for dt in page.all(".tile dt")]
    check("Parameters" in labels and "Arena" in labels, f"{page.name}: tiles {labels}")
    rows = len(page.all(".layers tbody tr"))
    check(rows > 0, f"{page.name}: layers have rows")
    page.press("All")
    page.wait(lambda: len(page.all(".layers tbody tr")) >= rows, "opens all layers")


def graph(page):
    page.open("graph")
    page.wait(lambda: page.all(".item"), "draws the graph")
    before = len(page.all(".item"))
    page.click(page.all(".item.scope")[0])
    page.wait(lambda: len(page.all(".item")) > before, "opens a scope by a click")
    check(page.all(".edge") and page.one(".panel h2").text, f"{page.name}: edges and a panel")
    page.click(page.all(".frame-label")[-1])
    page.wait(lambda: len(page.all(".item")) <= before, "closes the scope again")
    page.one(".item.scope").send_keys(Keys.ENTER)
    page.wait(lambda: len(page.all(".item")) > before, "opens a scope by Enter")
    overlaps = page.js("""
        for (let i = 0; i < 4; i++) {
            const scopes = document.querySelectorAll('.item.scope');
            if (scopes.length) scopes[scopes.length - 1].dispatchEvent(new MouseEvent('click', {bubbles: true}));
        }
        const boxes = [...document.querySelectorAll('.item')].map(i => [i.getAttribute('aria-label'), i.querySelector('rect').getBoundingClientRect()]);
        return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) => p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom)
            .map(([b]) => `${a} and ${b}`))""")
    check(not overlaps, f"{page.name}: nodes overlap: {overlaps[:2]}")
    check(page.all(".frame"), f"{page.name}: open scopes have frames")
    field = page.one("main input[type=search]")
    field.send_keys("matmul")
    page.wait(lambda: len(page.all(".results li")) > 1, "finds nodes")
    field.send_keys(Keys.ENTER)
    page.wait(lambda: page.js("return location.hash").startswith(("#node/", "#graph/")), "goes to what was found")
    page.wait(lambda: page.all(".selected"), "marks it")
    node = page.js("return JSON.parse(document.getElementById('weft-data').textContent).subjects[0].nodes"
                   ".find(n => n.op === 'matmul' && n.phase === 'forward').id")
    page.js("location.hash = `#node/${arguments[0]}`", node)
    page.wait(lambda: "matmul" in page.one(".panel").text and "Output" in page.one(".panel").text, "shows a node")
    links = page.all(".panel .related a")
    check(links, f"{page.name}: a node has links to others")
    if links:
        href = links[0].get_attribute("href").split("#")[1]
        page.click(links[0])
        page.wait(lambda: page.js("return location.hash") == f"#{href}", "follows a link to a node")
    scale = lambda: page.js("return d3.zoomTransform(document.querySelector('svg.canvas')).k")
    was = scale()
    page.one("svg.canvas").send_keys("+")
    page.wait(lambda: scale() > was * 1.1, "zooms by a key")
    page.js("history.back()")
    page.wait(lambda: page.js("return location.hash") == f"#node/{node}", "goes back")


def times(page, timed):
    page.open("time/table")
    page.wait(lambda: len(page.all("tbody tr")) > 2, "has rows")
    first = page.one("tbody tr").text
    heads = page.all("thead button")
    page.click(heads[0])
    page.wait(lambda: page.all("thead th[aria-sort=ascending]"), "sorts by a click")
    names = [td.text for td in page.all("tbody td:first-child")]
    check(names == sorted(names, key=str.lower), f"{page.name}: names are in order: {names[:4]}")
    page.one("main input[type=search]").send_keys("matmul")
    page.wait(lambda: all("matmul" in tr.text for tr in page.all("tbody tr")), "filters rows")
    page.press("By node")
    page.wait(lambda: len(page.all("tbody tr")) > 1, "has rows by node")
    check(first, f"{page.name}: the first row has text")
    if not timed:
        return
    page.open("time/flame")
    page.wait(lambda: len(page.all(".flame .bar")) > 8, "draws the flame graph")
    bars = page.all(".flame .bar")
    wide = bars[2].size["width"]
    page.click(bars[2])
    page.wait(lambda: max(b.size["width"] for b in page.all(".flame .bar")[:4]) >= wide, "enlarges a bar")
    page.open("time/timeline")
    page.wait(lambda: page.painted("main canvas") > 3, "draws the timeline")
    shown = page.js("return document.querySelector('main canvas').dataset.shown")
    page.one("main canvas").send_keys("+")
    page.wait(lambda: page.js("return document.querySelector('main canvas').dataset.shown") != shown, "zooms the timeline")
    page.open("time/roofline")
    page.wait(lambda: len(page.all(".dot")) > 3 and page.all(".roof"), "draws the roofline")


def memory(page):
    page.open("memory")
    page.wait(lambda: page.painted(".memory-canvas") > 3, "draws the arena")
    title = page.all("main h2")[1].text
    check("alive" in title and page.all("tbody tr"), f"{page.name}: lists what is alive: {title}")
    page.one(".memory-canvas").send_keys(Keys.ARROW_LEFT)
    page.wait(lambda: page.all("main h2")[1].text != title, "moves the cursor by a key")
    page.press("By scope")
    page.wait(lambda: page.painted(".memory-canvas") > 3, "colours by scope")


def run(page):
    page.open("")
    check(page.one("#tabs a[aria-current]").text == "Run", "run: the page opens on the curves")
    check(page.one(".tile dd").text == "step 14", f"run: a run of 14 steps says {page.one('.tile dd').text}")
    page.open("run")
    page.wait(lambda: len(page.all(".chart .line")) > 3, "draws curves")
    page.wait(lambda: page.painted(".histogram canvas") > 2, "draws histograms")
    check(page.all(".sample"), f"{page.name}: samples")
    before = page.one(".sample dt:nth-of-type(3)").text
    page.js("const s = document.querySelector('input[type=range]'); s.value = 0; s.dispatchEvent(new Event('input'))")
    page.wait(lambda: page.one(".sample dt:nth-of-type(3)").text != before, "goes to earlier samples")
    check(page.all(".attention rect"), f"{page.name}: attention weights")


def compare(page):
    page.open("compare")
    check("A: gpt" in page.one(".compare thead").text, f"{page.name}: both subjects")
    check(page.all(".compare .better, .compare .worse"), f"{page.name}: differences are marked")
    page.wait(lambda: len(page.all(".table-box tbody tr")) > 3, "lists differences")
    page.js("const s = document.getElementById('subject'); s.value = '1'; s.dispatchEvent(new Event('change'))")
    page.wait(lambda: page.js("return location.hash").startswith("#2:"), "shows the other subject")


def keys_and_themes(page):
    page.open("summary")
    body = page.one("body")
    grounds = set()
    for _ in range(3):
        grounds.add(page.js("return getComputedStyle(document.body).backgroundColor"))
        body.send_keys("t")
        time.sleep(0.1)
    check(len(grounds) == 2, f"{page.name}: light and dark grounds: {grounds}")
    body.send_keys("?")
    page.wait(lambda: page.js("return document.getElementById('keys').open"), "shows the keys")
    check("Mike Bostock" in page.js("return document.getElementById('licences').textContent"), "licences of the libraries")
    body.send_keys(Keys.ESCAPE)
    page.wait(lambda: not page.js("return document.getElementById('keys').open"), "closes them")
    body.send_keys("2")
    page.wait(lambda: page.one("#tabs a[aria-current]").text == "Graph", "goes to a section by its number")
    ActionChains(page.driver).send_keys(Keys.TAB).perform()
    check(page.js("return document.activeElement.tagName") != "BODY", f"{page.name}: Tab moves the focus")


def measure(page):
    """Prints, for the log, how soon the page is drawn and how smoothly the graph moves."""
    page.open("graph")
    drawn = page.js("return performance.getEntriesByType('navigation')[0].domComplete")
    frames = page.driver.execute_async_script("""
        const done = arguments[0], svg = d3.select('svg.canvas'), zoom = d3.zoom();
        let n = 0; const start = performance.now();
        const world = document.querySelector('svg.canvas > g');
        (function step() {
            world.setAttribute('transform', `translate(${n},${n}) scale(${1 + 0.2 * Math.sin(n / 9)})`);
            if (++n < 60) requestAnimationFrame(step); else done(1000 * n / (performance.now() - start));
        })()""")
    print(f"{page.name}: complete after {drawn:.0f} ms, {frames:.0f} frames a second while the graph moves")


def main():
    driver = open_driver("browser", "performance")
    try:
        for path in sys.argv[1:]:
            page = Page(driver, path)
            page.size(*WIDTHS[-1])
            has_run, both = page.name == "run", page.name == "both"
            expected = ["Run"] * has_run + ["Summary", "Graph", "Time", "Memory"] + ["Compare"] * both
            sections(page, expected)
            summary(page, has_run)
            graph(page)
            times(page, not has_run)
            memory(page)
            if has_run:
                run(page)
            if both:
                compare(page)
            if page.name == "model":
                keys_and_themes(page)
                measure(page)
        for entry in driver.get_log("browser"):
            if "getImageData" not in entry["message"]:  # about how this test reads canvases
                check(False, f"the console says: {entry['message']}")
        requests = [e["message"] for e in driver.get_log("performance") if '"Network.requestWillBeSent"' in e["message"]
                    and '"url":"http' in e["message"]]
        check(not requests, f"a page asks the network: {requests[:1]}")
    finally:
        driver.quit()
    return check.summary("browser")


sys.exit(main())
