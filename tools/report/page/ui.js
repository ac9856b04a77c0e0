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
            el("dl", { class: "parts-list" }, shown.map((p) => el("div", {},
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

    return { el, svg, clear, section, empty, link, choice, toggle, legend, partsBar, showTip, hideTip, variable, phases,
        phaseColour, phaseName, palette, otherColour, colours, resolved, placer, stillness, canvas };
})();
