/* The page: training, the curve of the loss, the table of hashes, and drawing. */

const STEPS = 1000, EVERY = 100, CHUNK = 5, SEED = 1, SIDE = 32, PEN = 2;
const element = (id) => document.getElementById(id);

/* The bytes of a part of the page that build.sh has packed. */
async function unpacked(id) {
    const packed = Uint8Array.from(atob(element(id).textContent.replace(/\s/g, "")), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* { step: { loss, hash } } of what native.c prints. */
function expected_rows() {
    const line = /step (\d+) loss (\S+) accuracy \S+ hash (\w+)/g;
    return Object.fromEntries([...element("expected").textContent.matchAll(line)].map(
        ([, step, loss, hash]) => [step, { loss: Number(loss), hash }]));
}

/* ---- The curve ---- */

function draw_losses(losses) {
    const canvas = element("loss"), scale = devicePixelRatio, style = getComputedStyle(document.body);
    const width = canvas.clientWidth, height = canvas.clientHeight, left = 34, right = 20, bottom = 18, most = 2.5;
    const colour = (name) => {
        canvas.style.color = `var(${name})`;
        return getComputedStyle(canvas).color;
    };
    canvas.width = width * scale;
    canvas.height = height * scale;
    const c = canvas.getContext("2d");
    c.scale(scale, scale);
    c.font = `12px ${style.fontFamily}`;
    const x = (step) => left + (step / STEPS) * (width - left - right);
    const y = (loss) => 6 + (1 - Math.min(loss, most) / most) * (height - bottom - 12);
    c.strokeStyle = colour("--rule");
    c.fillStyle = colour("--quiet");
    for (let loss = 0; loss <= most; loss += 0.5) {
        c.beginPath();
        c.moveTo(left, y(loss));
        c.lineTo(width - right, y(loss));
        c.stroke();
        c.fillText(loss.toFixed(1), 8, y(loss) + 4);
    }
    c.textAlign = "center";
    for (let step = 0; step <= STEPS; step += 200) c.fillText(step, x(step), height - 4);
    c.strokeStyle = colour("--line");
    c.lineWidth = 1.5;
    c.beginPath();
    for (const [step, loss] of losses) c.lineTo(x(step), y(loss));
    c.stroke();
}

/* ---- Drawing ---- */

/* The strokes, moved and enlarged until they fill a bitmap of 32 x 32 with some room for the pen.
 * An image has, for each block of 4 x 4, the count of bits that are set: so the data were made. */
function image_of(strokes) {
    const points = strokes.flat(), image = new Uint8Array(64);
    if (!points.length) return image;
    const range = (axis) => {
        const all = points.map((p) => p[axis]);
        return [Math.min(...all), Math.max(...all)];
    };
    const [left, right] = range(0), [top, bottom] = range(1);
    const scale = Math.min((SIDE - 2 * PEN) / Math.max(bottom - top, right - left, 1));
    const fit = ([x, y]) => [(x - (left + right) / 2) * scale + SIDE / 2, (y - (top + bottom) / 2) * scale + SIDE / 2];
    const lines = strokes.flatMap((stroke) => stroke.map((p, i) => [fit(stroke[Math.max(i - 1, 0)]), fit(p)]));
    const distance = (x, y, [[ax, ay], [bx, by]]) => {
        const dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
        const t = length ? Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / length)) : 0;
        return Math.hypot(x - ax - t * dx, y - ay - t * dy);
    };
    for (let y = 0; y < SIDE; y++)
        for (let x = 0; x < SIDE; x++)
            if (lines.some((line) => distance(x + 0.5, y + 0.5, line) <= PEN)) image[(y >> 2) * 8 + (x >> 2)]++;
    return image;
}

function draw_image(image) {
    const c = element("seen").getContext("2d");
    for (let i = 0; i < 64; i++) {
        c.fillStyle = `rgb(${[1, 1, 1].map(() => Math.round(255 - image[i] * 255 / 16))})`;
        c.fillRect(8 * (i % 8), 8 * (i >> 3), 8, 8);
    }
}

function draw_strokes(strokes) {
    const canvas = element("drawing"), c = canvas.getContext("2d");
    c.clearRect(0, 0, canvas.width, canvas.height);
    c.strokeStyle = getComputedStyle(document.body).color;
    c.lineWidth = 16;
    c.lineCap = c.lineJoin = "round";
    for (const stroke of strokes) {
        c.beginPath();
        c.moveTo(...stroke[0]);
        for (const point of stroke) c.lineTo(...point);
        c.stroke();
    }
}

function draw_bars(probabilities) {
    const best = Math.max(...probabilities);
    element("bars").innerHTML = probabilities.map((p, digit) =>
        `<div class="bar${p === best ? " first" : ""}"><b>${digit}</b><i style="width: ${(100 * p).toFixed(1)}%"></i>` +
        `<span>${(100 * p).toFixed(1)} %</span></div>`).join("");
}

/* ---- The page ---- */

async function begin() {
    const [wasm, images, labels] = await Promise.all(["wasm", "images", "labels"].map(unpacked));
    const network = await load_digits(wasm, images, labels), expected = expected_rows();
    const root = document.documentElement.dataset;
    let step, losses, ms, running = false, strokes = [], image = new Uint8Array(64);

    function show(text) {
        element("state").textContent = text;
        element("train").textContent = running ? "Stop" : "Train";
        element("train").disabled = step >= STEPS;
        root.step = step;
    }
    function read() {
        draw_image(image);
        draw_bars(network.read(image));
    }
    function add_row(loss) {
        const row = expected[step] || { hash: "" }, hash = network.hash();
        const equal = row.hash === hash && row.loss === Number(loss.toPrecision(9));
        element("rows").insertAdjacentHTML("beforeend", `<tr><td>${step}</td><td>${loss.toFixed(6)}</td>` +
            `<td>${(100 * network.accuracy()).toFixed(2)} %</td><td><code>${hash}</code></td>` +
            `<td class="${equal ? "good" : "bad"}">${equal ? "the same" : row.hash || "not recorded"}</td></tr>`);
    }
    function train() {
        if (!running) return;
        const began = performance.now(), loss = network.train(CHUNK);
        ms += performance.now() - began;
        step += CHUNK;
        losses.push([step, loss]);
        draw_losses(losses);
        if (step % EVERY === 0) add_row(loss);
        if (step % 25 === 0) read();
        running = running && step < STEPS;
        show(`step ${step}, loss ${loss.toFixed(3)}, ${(ms / step).toFixed(1)} ms a step`);
        setTimeout(train);
    }
    function restart() {
        network.start(SEED);
        step = ms = 0;
        losses = [];
        running = false;
        element("rows").textContent = "";
        draw_losses(losses);
        read();
        show("ready");
    }
    element("train").onclick = () => {
        running = !running;
        if (running) setTimeout(train);
        else show(`stopped at step ${step}`);
    };
    element("again").onclick = restart;

    const drawing = element("drawing");
    function changed() {
        draw_strokes(strokes);
        image = image_of(strokes);
        read();
    }
    drawing.onpointerdown = (e) => {
        drawing.setPointerCapture(e.pointerId);
        strokes.push([[e.offsetX, e.offsetY]]);
        changed();
    };
    drawing.onpointermove = (e) => {
        if (!e.buttons || !strokes.length) return;
        strokes.at(-1).push([e.offsetX, e.offsetY]);
        changed();
    };
    element("clear").onclick = () => {
        strokes = [];
        changed();
    };
    element("example").onclick = () => {
        const row = 1437 + Math.floor(Math.random() * 360);
        strokes = [];
        draw_strokes(strokes);
        image = images.slice(64 * row, 64 * row + 64);
        read();
    };
    onresize = () => draw_losses(losses);
    restart();
    root.ready = "true";
}

begin().catch((e) => {
    element("state").textContent = e.message;
    element("state").className = "bad";
});
