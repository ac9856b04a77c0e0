// Samples of translations over time: one sentence, its reference, and what each validation made of it.
const samples = (() => {
    const { el } = ui;

    function section(r) {
        const list = r.samples || [];
        if (!list.length) return null;
        const bySource = d3.group(list, (s) => s.source), steps = [...new Set(list.map((s) => s.step))].sort((a, b) => a - b);
        let at = steps.length - 1;
        const body = el("div", { class: "samples" }), label = el("output", {});
        function draw() {
            label.textContent = `step ${format.integer(steps[at])}`;
            body.replaceChildren(...[...bySource].slice(0, 12).map(([source, all]) => {
                const now = all.filter((s) => s.step <= steps[at]).sort((a, b) => b.step - a.step)[0];
                return el("dl", { class: "sample" }, el("dt", {}, "Source"), el("dd", {}, source), all[0].reference !== undefined && [el("dt", {}, "Reference"), el("dd", {}, all[0].reference)],
                    el("dt", {}, now ? `Step ${format.integer(now.step)}` : "Not yet"), el("dd", { class: "now" }, now ? now.text : format.absent));
            }));
        }
        draw();
        const slider = el("input", { type: "range", min: 0, max: steps.length - 1, value: at, "aria-label": "Step of the samples", oninput: (event) => { at = +event.target.value; draw(); } });
        return ui.section("Samples over time", null, el("div", { class: "bar-of-tools" }, slider, label), body);
    }

    return { section };
})();
