// Sections, their addresses, themes, keys, and the updates of a run that goes on.
const app = (() => {
    const { el } = ui;
    const byId = (id) => document.getElementById(id);
    const { document: doc, models } = data.load();
    const state = { document: doc, models, model: models[0], at: 0, compare: !!doc.compare && models.length === 2 };

    const withNodes = (m) => m.nodes.length > 0;
    const sections = [
        { id: "run", name: "Run", render: run.render, has: () => models.some((m) => m.subject.run) },
        { id: "summary", name: "Summary", render: summary.render, has: () => true },
        { id: "graph", name: "Graph", render: graph.render, has: withNodes },
        { id: "time", name: "Time", render: time.render, has: (m) => m.nodes.some((n) => n.seconds !== undefined || n.flops) },
        { id: "memory", name: "Memory", render: memory.render, has: (m) => (m.subject.buffers || []).length > 0 },
        { id: "compare", name: "Compare", render: compare.render, has: () => state.compare },
    ];
    const shown = () => sections.filter((s) => s.has(state.model));

    // "#time/flame" is section time with the path ["flame"]; "#2:graph/enc" is of the second subject.
    function address() {
        let text = "";
        try { text = decodeURIComponent(location.hash.slice(1)); } catch { text = ""; }
        const [, subject, rest] = /^(?:(\d+):)?(.*)$/.exec(text);
        const [name, ...path] = rest.split("/");
        return { subject: subject ? Number(subject) - 1 : undefined, name, path };
    }

    function route() {
        const { subject, name, path } = address();
        if (subject !== undefined && models[subject]) select(subject);
        const wanted = name === "node" ? "graph" : name;
        const section = shown().find((s) => s.id === wanted) || (name === "main" ? state.section : undefined) || firstSection();
        const again = state.section === section && state.drawn === state.model && section.update !== null;
        state.section = section;
        state.drawn = state.model;
        ui.hideTip();
        for (const link of byId("tabs").children) {
            if (link.dataset.id === section.id) link.setAttribute("aria-current", "page");
            else link.removeAttribute("aria-current");
        }
        const go = { name, path: section.id === name || name === "node" ? path : [] };
        if (again && state.move && state.move(go)) return;
        state.move = undefined;
        const content = section.render(state, go);
        const main = byId("main");
        main.className = `page-${section.id}`;
        main.replaceChildren(...[content].flat().filter(Boolean));
        if (state.shown) state.shown();
        state.shown = undefined;
        if (!again) scrollTo(0, 0);
    }

    // A comparison opens on the differences, a run on its curves.
    const firstSection = () => sections.find((s) => s.id === "compare" && s.has(state.model)) || shown()[0];

    function tabs() {
        byId("tabs").replaceChildren(...shown().map((s) => el("a", { href: `#${s.id}`, "data-id": s.id }, s.name)));
    }

    function select(i) {
        if (i === state.at) return;
        state.at = i;
        state.model = models[i];
        byId("subject").value = String(i);
        tabs();
    }

    function subjects() {
        byId("subject-choice").hidden = models.length < 2;
        byId("subject").replaceChildren(...models.map((m, i) => el("option", { value: i }, state.compare ? `${"AB"[i]}: ${m.subject.name}` : m.subject.name)));
        byId("subject").addEventListener("change", (event) => {
            select(Number(event.target.value));
            const { name, path } = address();
            history.replaceState(null, "", `#${state.at + 1}:${[name === "node" ? "graph" : name, ...(name === "node" ? [] : path)].join("/")}`);
            route();
        });
    }

    // Automatic follows the system; the button goes through the three.
    const themes = { auto: "◐", light: "☀", dark: "☾" };
    function theme(name) {
        state.theme = name;
        if (name === "auto") delete document.documentElement.dataset.theme;
        else document.documentElement.dataset.theme = name;
        const button = byId("theme");
        button.textContent = themes[name];
        button.title = `Theme: ${name}`;
        button.setAttribute("aria-label", `Theme: ${name}`);
        try { localStorage.setItem("weft-theme", name); } catch { /* pages of files may have no storage */ }
        dispatchEvent(new Event("weft-theme"));
    }
    function themeSwitch() {
        let saved = "auto";
        try { saved = localStorage.getItem("weft-theme") || "auto"; } catch { saved = "auto"; }
        theme(themes[saved] ? saved : "auto");
        byId("theme").addEventListener("click", () => {
            const names = Object.keys(themes);
            theme(names[(names.indexOf(state.theme) + 1) % names.length]);
        });
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("weft-theme")));
    }

    const keys = [["1 – 6", "sections"], ["/", "search in the graph, or filter the table"], ["Arrows", "move in trees, tables and the memory's cursor; pan the graph"],
        ["Enter", "open or close a scope, go to a node"], ["+  −  0", "zoom in, out, and fit the graph, flame graph or timeline"],
        ["Esc", "close what is open"], ["T", "theme"], ["?", "these keys"]];

    function dialog() {
        const box = byId("keys");
        box.replaceChildren(el("h2", { id: "keys-title" }, "Keys"),
            el("dl", { class: "keys" }, keys.map(([k, what]) => el("div", {}, el("dt", {}, el("kbd", {}, k)), el("dd", {}, what)))),
            el("details", {}, el("summary", {}, "Licences of the libraries in this page"), el("pre", {}, byId("licences").textContent)),
            el("button", { type: "button", onclick: () => box.close() }, "Close"));
        byId("help").addEventListener("click", () => box.showModal());
        box.addEventListener("click", (event) => event.target === box && box.close());
    }

    function onKey(event) {
        const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
        if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
        if (event.key === "Escape") {
            ui.hideTip();
            if (typing) event.target.blur();
            else if (state.close) state.close();
            return;
        }
        if (typing) return;
        const at = Number(event.key);
        if (event.key === "?") byId("keys").showModal();
        else if (event.key === "t" || event.key === "T") byId("theme").click();
        else if (event.key === "/") {
            const field = document.querySelector("main input[type=search]");
            if (!field) return;
            event.preventDefault();
            field.focus();
        } else if (at >= 1 && at <= shown().length) {
            location.hash = `#${shown()[at - 1].id}`;
            byId("main").focus({ preventScroll: true });
        }
    }

    // A page that a server serves asks for the document again while the run goes on.
    function watch() {
        const running = () => models[0] && models[0].subject.run && models[0].subject.run.running;
        if (!location.protocol.startsWith("http") || !running()) return;
        byId("live").hidden = false;
        const timer = setInterval(async () => {
            try {
                const answer = await fetch("data.json", { cache: "no-store" });
                if (!answer.ok) throw new Error(String(answer.status));
                const next = (await answer.json()).subjects.map(data.model);
                models.splice(0, models.length, ...next);
                state.model = models[state.at] || models[0];
                byId("live").className = "live";
            } catch {
                byId("live").className = "live lost";
                return;
            }
            if (state.section.id === "run" && state.refresh) state.refresh();
            if (running()) return;
            clearInterval(timer);
            byId("live").hidden = true;
        }, 5000);
    }

    function start() {
        document.title = `${doc.title} – weft report`;
        byId("title").textContent = doc.title;
        byId("subtitle").textContent = models.length === 1 ? models[0].subject.command || "" : models.map((m) => m.subject.name).join(state.compare ? " against " : ", ");
        subjects();
        tabs();
        themeSwitch();
        dialog();
        addEventListener("hashchange", route);
        addEventListener("keydown", onKey);
        route();
        watch();
        document.documentElement.dataset.ready = "true";
    }

    return { start };
})();
app.start();
