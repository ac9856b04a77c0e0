// A run: its curves, several runs over each other, histograms, samples and attention weights.
const run = (() => {
    const { el } = ui;
    const runsOf = (app) => app.models.filter((m) => m.subject.run).map((m, i) => ({ name: m.subject.run.folder || m.subject.name, run: m.subject.run, colour: i }));
    const hue = (i) => ui.palette[[0, 1, 2, 5, 6, 4, 3, 7, 8][i % 9]];

    // Steps between two lines of losses are in no such line: the last validation and the checkpoint count as well.
    const stepOf = (r) => d3.max([r.updates, ...(r.log || []).map((l) => l.step)]);

    function curves(app, log, by) {
        const runs = runsOf(app), one = runs.length === 1, at = (l) => by === "time" ? l.seconds : l.step;
        const points = (r, key) => (r.run.log || []).filter((l) => format.known(l[key]) && format.known(at(l))).map((l) => [at(l), l[key]]);
        const chart = (title, keys, options) => {
            const series = runs.flatMap((r, i) => keys.map(([key, name, faint, dots], k) => ({ name: one ? name : keys.length > 1 ? `${r.name} ${name}` : r.name,
                colour: one ? hue(k) : hue(i), points: points(r, key), faint, dots }))).filter((s) => s.points.length);
            return series.length ? charts.lines(series, { title, x: by === "time" ? "second" : "step", ...options }) : null;
        };
        const legend = one ? ui.legend([["loss of a step", hue(0)], ["smoothed", hue(1)], ["validation", hue(2)]]) : ui.legend(runs.map((r, i) => [r.name, hue(i)]));
        return [legend, el("div", { class: "charts" },
            chart("Loss", one ? [["loss", "loss", true], ["smoothed", "smoothed"], ["validation_loss", "validation", false, true]] : [["smoothed", "smoothed"], ["validation_loss", "validation", false, true]], { log, height: 300 }),
            chart("Learning rate", [["lr", "learning rate"]], {}),
            chart("Gradient norm", [["norm", "gradient norm"]], { log }),
            chart("Tokens per second", [["tokens_per_second", "tokens/s"]], { text: format.count }),
            chart("Rows per second", [["rows_per_second", "rows/s"]], { text: format.count }),
            chart("Accuracy", [["accuracy", "accuracy", false, true]], { text: format.percent }),
            chart("BLEU", [["bleu", "BLEU", false, true]], {}))].flat();
    }

    function status(app) {
        return ui.grid("dl", { class: "tiles" }, 300, runsOf(app).map(({ name, run: r }) => {
            const log = r.log || [], steps = log.filter((l) => format.known(l.loss)), last = steps[steps.length - 1] || {}, valid = log.filter((l) => format.known(l.validation_loss));
            const best = valid.length ? valid[d3.minIndex(valid, (l) => l.validation_loss)] : undefined;
            return el("div", { class: "tile wide" }, el("dt", {}, name), el("dd", {}, `step ${format.integer(stepOf(r))}`),
                el("small", {}, [format.known(last.smoothed) && `loss ${format.value(last.smoothed)}`, best && `best validation ${format.value(best.validation_loss)} at step ${format.integer(best.step)}`,
                    r.running ? "running" : "", format.known(last.seconds) && `${format.seconds(last.seconds)} of training`].filter(Boolean).join(" · ")));
        }));
    }

    // A map of densities: steps across, the values up.
    function histogramMap(lines, title) {
        const low = d3.min(lines, (h) => h.low), high = d3.max(lines, (h) => h.high), bins = 48, most = Math.max(Math.abs(low), Math.abs(high)) || 1;
        const canvas = ui.canvas(120, (c, width, height) => {
            const w = width / lines.length, ink = d3.rgb(ui.resolved(title === "gradient" ? "var(--backward)" : "var(--forward)"));
            lines.forEach((h, i) => {
                const density = new Float64Array(bins), total = d3.sum(h.counts), size = (h.high - h.low) / h.counts.length;
                h.counts.forEach((n, k) => {
                    // A count is spread over the bins of the picture in proportion: others would show stripes.
                    const place = (v) => Math.max(0, Math.min(bins, (v + most) / (2 * most) * bins));
                    const from = place(h.low + k * size), to = Math.max(from + 1e-9, place(h.low + (k + 1) * size));
                    for (let bin = Math.min(bins - 1, Math.floor(from)); bin < to && bin < bins; bin++)
                        density[bin] += n / total * (Math.min(to, bin + 1) - Math.max(from, bin)) / (to - from);
                });
                density.forEach((d, k) => {
                    if (!d) return;
                    c.fillStyle = `rgba(${ink.r},${ink.g},${ink.b},${Math.min(1, 0.06 + Math.sqrt(d) * 0.94)})`;
                    c.fillRect(i * w, height - (k + 1) * height / bins, Math.max(1, w - (w > 4 ? 1 : 0)), height / bins + 0.5);
                });
            });
        }, { role: "img", "aria-label": `${title} over ${lines.length} steps`, tabindex: -1 });
        canvas.addEventListener("pointermove", (event) => {
            const box = canvas.getBoundingClientRect(), h = lines[Math.max(0, Math.min(lines.length - 1, Math.floor((event.clientX - box.left) / box.width * lines.length)))];
            ui.showTip(event, [`step ${format.integer(h.step)}`, `from ${format.value(h.low)} to ${format.value(h.high)}`, `mean ${format.value(h.mean)}, rms ${format.value(h.rms)}`]);
        });
        canvas.addEventListener("pointerleave", ui.hideTip);
        return el("figure", { class: "figure" }, el("figcaption", {}, `${title}s, ±${format.value(most)}`), canvas);
    }

    function histograms(r) {
        const list = r.histograms || [];
        if (!list.length) return null;
        const byName = d3.group(list, (h) => h.name), body = el("div", { class: "histograms" });
        let wanted = "", limit = 8;
        const more = el("button", { type: "button", class: "more", onclick: () => { limit *= 3; draw(); } });
        function draw() {
            const names = [...byName.keys()].filter((n) => n.toLowerCase().includes(wanted));
            body.replaceChildren(...names.slice(0, limit).map((name) => {
                const kinds = d3.group(byName.get(name), (h) => h.kind);
                return el("div", { class: "histogram" }, el("h3", { class: "mono" }, name), el("div", { class: "pair" },
                    ["weight", "gradient"].filter((k) => kinds.has(k)).map((k) => histogramMap(kinds.get(k).sort((a, b) => a.step - b.step), k))));
            }));
            more.hidden = names.length <= limit;
            more.textContent = `Show more of ${names.length} parameters`;
        }
        draw();
        return ui.section("Weights and gradients", "Each column is a step; the darker, the more elements have that value. Zero is in the middle.",
            el("div", { class: "bar-of-tools" }, table.filter("Filter parameters", (t) => { wanted = t.trim().toLowerCase(); draw(); })), body, more);
    }

    function attention(r) {
        const maps = (r.attention || []).filter((a) => a.heads && a.heads.length);
        if (!maps.length) return null;
        let at = 0, head = 0;
        const box = el("div", {}), heads = el("div", {});
        function draw() {
            const a = maps[at], w = a.heads[Math.min(head, a.heads.length - 1)], cell = 22;
            heads.replaceChildren(a.heads.length > 1 ? ui.choice("Head", a.heads.map((_, i) => [i, `head ${i + 1}`]), Math.min(head, a.heads.length - 1), (v) => { head = v; draw(); }) : "");
            const left = 12 + 7.2 * d3.max(a.target, (t) => t.length), top = 12 + 7.2 * d3.max(a.source, (t) => t.length);
            const picture = ui.svg("svg", { class: "attention", width: left + cell * a.source.length + 8, height: top + cell * a.target.length + 8, role: "img", "aria-label": `Attention weights of ${a.name}` });
            a.source.forEach((t, j) => picture.append(ui.svg("text", { transform: `translate(${left + j * cell + cell / 2 + 4},${top - 8}) rotate(-90)` }, t)));
            a.target.forEach((t, i) => {
                picture.append(ui.svg("text", { x: left - 8, y: top + i * cell + 15, "text-anchor": "end" }, t));
                (w[i] || []).forEach((p, j) => picture.append(ui.svg("rect", { x: left + j * cell, y: top + i * cell, width: cell - 1, height: cell - 1, rx: 2, style: { fill: "var(--forward)", "fill-opacity": Math.max(0.03, Math.min(1, p)) },
                    onpointermove: (event) => ui.showTip(event, [`${t} → ${a.source[j]}`, `weight ${p.toFixed(3)}`]), onpointerleave: ui.hideTip })));
            });
            box.replaceChildren(ui.scroll(picture));
        }
        draw();
        const select = el("select", { "aria-label": "Layer and sentence", onchange: (event) => { at = +event.target.value; draw(); } },
            maps.map((a, i) => el("option", { value: i }, `${a.name}: ${a.source.join(" ").slice(0, 60)}`)));
        return ui.section("Attention", "Rows are tokens that the model writes, columns those that it reads; the darker, the greater the weight.", el("div", { class: "bar-of-tools" }, select, heads), box);
    }

    function render(app) {
        let log = false, by = "step", seen = "";
        const tiles = el("div"), box = el("div", { class: "block" }), rest = el("div", { class: "block stack" });
        const draw = () => { tiles.replaceChildren(status(app)); box.replaceChildren(...curves(app, log, by).filter(Boolean)); };
        function drawRest() {
            const r = app.model.subject.run || runsOf(app)[0].run, now = JSON.stringify([(r.histograms || []).length, (r.samples || []).length, (r.attention || []).length, app.at]);
            if (now === seen) return;
            seen = now;
            rest.replaceChildren(...[samples.section(r), histograms(r), attention(r)].filter(Boolean));
        }
        app.refresh = () => { draw(); drawRest(); };
        app.refresh();
        return [tiles, ui.section("Curves", null, el("div", { class: "bar-of-tools" }, ui.choice("Over", [["step", "Over steps"], ["time", "Over time"]], by, (v) => { by = v; draw(); }), ui.toggle("Logarithmic", log, (v) => { log = v; draw(); })), box), rest];
    }

    return { render, runsOf, hue };
})();
