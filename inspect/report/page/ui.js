// Elements, colours, the tooltip and the dialog. Text from the document is only ever set as text.
const ui = (() => {
    const svgSpace = "http://www.w3.org/2000/svg";

    function set(node, attributes, children) {
        for (const [name, value] of Object.entries(attributes || {})) {
            if (value === undefined || value === false || value === null) continue;
            if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
            else if (name === "style") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
            else node.setAttribute(name, value === true ? "" : value);
        }
        append(node, children);
        return node;
    }

    function append(node, children) {
        for (const child of children.flat(Infinity)) {
            if (child === undefined || child === null || child === false) continue;
            node.append(child instanceof Node ? child : document.createTextNode(String(child)));
        }
    }

    const el = (tag, attributes, ...children) => set(document.createElement(tag), attributes, children);
    const svg = (tag, attributes, ...children) => set(document.createElementNS(svgSpace, tag), attributes, children);

    function clear(node) {
        node.replaceChildren();
        return node;
    }

    const section = (title, note, ...content) =>
        el("section", { class: "block" }, title && el("h2", {}, title), note && el("p", { class: "note" }, note), ...content);
    // A grid of equal cells. Its number of columns follows from its width, and no row has one cell only; where that
    // cannot be, with two columns, the last cell takes the whole row.
    function grid(tag, attributes, least, ...children) {
        const box = el(tag, attributes, ...children), gap = () => parseFloat(getComputedStyle(box).columnGap) || 0;
        new ResizeObserver(() => {
            const cells = box.children.length, room = Math.max(1, Math.floor((box.clientWidth + gap()) / (least + gap())));
            let columns = Math.ceil(cells / Math.ceil(cells / room));
            while (columns > 2 && cells > columns && cells % columns === 1) columns--;
            box.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
            box.classList.toggle("last-alone", columns === 2 && cells % 2 === 1);
        }).observe(box);
        return box;
    }

    // A box that scrolls sideways. Where columns are out of sight, its edges fade and a line says so.
    function scroll(...children) {
        const box = el("div", { class: "scroll", tabindex: -1 }, ...children), note = el("p", { class: "sideways", hidden: true });
        const mark = () => {
            const left = box.scrollLeft > 1, right = box.scrollLeft + box.clientWidth < box.scrollWidth - 1;
            box.classList.toggle("more-left", left);
            box.classList.toggle("more-right", right);
            box.tabIndex = left || right ? 0 : -1;
            note.hidden = !left && !right;
            note.textContent = right ? "More columns to the right: scroll sideways →" : "← More columns to the left";
        };
        box.addEventListener("scroll", mark);
        const watch = new ResizeObserver(mark);
        [box, ...box.children].forEach((node) => watch.observe(node));
        return el("div", { class: "sideways-box" }, note, box);
    }

    const empty = (text) => el("p", { class: "empty" }, text);
    const link = (text, hash, attributes) => el("a", { href: hash, ...attributes }, text);

    // A row of buttons of which one is pressed. choices: [[value, label], ...].
    function choice(label, choices, current, change) {
        const group = el("div", { class: "choice", role: "group", "aria-label": label });
        const press = (value) => {
            for (const b of group.children) b.setAttribute("aria-pressed", b.dataset.value === String(value));
        };
        for (const [value, text] of choices) {
            group.append(el("button", { type: "button", "data-value": value,
                onclick: () => { press(value); change(value); } }, text));
        }
        press(current);
        return group;
    }

    function toggle(label, checked, change, swatch) {
        const input = el("input", { type: "checkbox", checked, onchange: () => change(input.checked) });
        return el("label", { class: "toggle" }, input, swatch && el("i", { class: "swatch", style: { background: swatch } }), label);
    }

    function legend(entries) {
        return el("ul", { class: "legend" }, entries.map(([name, colour]) =>
            el("li", {}, el("i", { class: "swatch", style: { background: colour } }), name)));
    }

    // A bar of parts: [{ name, value, text, colour }].
    function partsBar(parts, label) {
        const total = parts.reduce((sum, p) => sum + p.value, 0) || 1;
        const shown = parts.filter((p) => p.value > 0);
        return el("div", { class: "parts" },
            el("div", { class: "parts-bar", role: "img", "aria-label": `${label}: ${shown.map((p) => `${p.name} ${p.text}`).join(", ")}` },
                shown.map((p) => el("div", { class: "part", title: `${p.name}: ${p.text}`,
                    style: { width: `${100 * p.value / total}%`, background: p.colour } }))),
            grid("dl", { class: "parts-list" }, 140, shown.map((p) => el("div", {},
                el("dt", {}, el("i", { class: "swatch", style: { background: p.colour } }), p.name),
                el("dd", {}, p.text, el("small", {}, format.percent(p.value / total)))))));
    }

    const tip = () => document.getElementById("tooltip");

    // lines: texts; the first is the title.
    function showTip(event, lines) {
        const box = clear(tip());
        lines.filter(Boolean).forEach((line, i) => box.append(el(i ? "div" : "strong", {}, line)));
        box.hidden = false;
        const { width, height } = box.getBoundingClientRect(), gap = 14;
        const x = Math.max(4, event.clientX + gap + width > innerWidth ? event.clientX - gap - width : event.clientX + gap);
        const y = event.clientY + gap + height > innerHeight ? event.clientY - gap - height : event.clientY + gap;
        box.style.left = `${Math.min(x, Math.max(4, innerWidth - width - 4))}px`;
        box.style.top = `${Math.max(4, y)}px`;
    }

    function hideTip() { tip().hidden = true; }

    const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const phases = ["forward", "backward", "update"];
    const phaseColour = (phase) => `var(--${phases.includes(phase) ? phase : "forward"})`;
    const phaseName = { forward: "Forward", backward: "Backward", update: "Update" };
    // Paul Tol's "bright" and "muted" hues, which stay distinct for colour-blind readers.
    const palette = Array.from({ length: 9 }, (_, i) => `var(--hue-${i})`);
    const otherColour = "var(--hue-other)";

    // Names by decreasing weight get the palette's colours, the others one grey.
    function colours(names) {
        const map = new Map(names.map((name, i) => [name, i < palette.length ? palette[i] : otherColour]));
        return (name) => map.get(name) || otherColour;
    }

    // The colour as a canvas needs it: variables resolved.
    function resolved(colour) {
        const match = /^var\((.*)\)$/.exec(colour);
        return match ? variable(match[1]) : colour;
    }

    // Takes boxes [left, top, right, bottom] one after the other, and refuses those that lie on an earlier one.
    function placer(taken) {
        return (box) => {
            if (taken.some((o) => o[0] < box[2] && box[0] < o[2] && o[1] < box[3] && box[1] < o[3])) return false;
            taken.push(box);
            return true;
        };
    }

    const stillness = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

    // A canvas for sharp pixels that calls draw(context, width, height) when its size or the theme changes.
    function canvas(height, draw, attributes) {
        const node = el("canvas", { tabindex: 0, style: { height: `${height}px` }, ...attributes });
        let pending = false;
        const paint = () => {
            pending = false;
            const width = node.clientWidth;
            if (!width || !node.isConnected) return;
            const ratio = devicePixelRatio || 1;
            if (node.width !== Math.round(width * ratio) || node.height !== Math.round(height * ratio)) {
                node.width = Math.round(width * ratio);
                node.height = Math.round(height * ratio);
            }
            const context = node.getContext("2d");
            context.setTransform(ratio, 0, 0, ratio, 0, 0);
            context.clearRect(0, 0, width, height);
            draw(context, width, height);
        };
        node.redraw = () => {
            if (!pending) requestAnimationFrame(paint);
            pending = true;
        };
        new ResizeObserver(node.redraw).observe(node);
        addEventListener("weft-theme", () => node.isConnected && node.redraw());
        return node;
    }

    return { el, svg, clear, grid, scroll, section, empty, link, choice, toggle, legend, partsBar, showTip, hideTip, variable, phases,
        phaseColour, phaseName, palette, otherColour, colours, resolved, placer, stillness, canvas };
})();
