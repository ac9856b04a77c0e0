// An exported model in ONNX Runtime, with all its optimisations of the graph:
//     node peer_onnx.js MODEL.onnx DUMP [threads] [runs]
// DUMP is what `weft bench encoder-forward --dump` wrote: the input, and the output to hold the result
// against. Prints JSON as peer_torch.py does. onnxruntime-node is looked for in $NODE_PATH.
"use strict";
const fs = require("fs");
const ort = require("onnxruntime-node");

const MIN_SECONDS = 0.1, MAX_RUNS = 50; // of a row of runs: as weft bench does

function load(path, wanted) {
    const file = fs.readFileSync(path), length = Number(file.readBigUInt64LE(0));
    const header = JSON.parse(file.toString("utf8", 8, 8 + length)), tensors = {};
    for (const name of wanted) {
        const [begin, end] = header[name].data_offsets;
        const bytes = new Uint8Array(file.subarray(8 + length + begin, 8 + length + end));
        tensors[name] = { data: new Float32Array(bytes.buffer), shape: header[name].shape };
    }
    return tensors;
}

function difference(got, wanted) {
    let over = 0, under = 0;
    for (let i = 0; i < wanted.length; i++) {
        over += (got[i] - wanted[i]) ** 2;
        under += wanted[i] ** 2;
    }
    return got.length === wanted.length ? Math.sqrt(over / under) : Infinity;
}

async function main() {
    const [model, dump, threads = "2", runs = "3"] = process.argv.slice(2);
    const base = process.memoryUsage().rss;
    const tensors = load(dump, ["input.input", "output"]);
    const session = await ort.InferenceSession.create(model, {
        graphOptimizationLevel: "all", executionMode: "sequential",
        intraOpNumThreads: Number(threads), interOpNumThreads: 1,
    });
    const { data, shape } = tensors["input.input"];
    const feed = { input: new ort.Tensor("float32", data, shape) };
    const { output } = await session.run(feed);
    const agreement = { compared: 1, output: difference(output.data, tensors.output.data), grad: 0, grad_peer: 0 };
    const seconds = [];
    let sum = 0;
    while (seconds.length < Number(runs) || (seconds.length < MAX_RUNS && sum < MIN_SECONDS)) {
        const begin = process.hrtime.bigint();
        await session.run(feed);
        seconds.push(Number(process.hrtime.bigint() - begin) * 1e-9);
        sum += seconds[seconds.length - 1];
    }
    console.log(JSON.stringify({
        onnxruntime: ort.env.versions.node, threads: Number(threads), agreement, seconds,
        peak_bytes: process.resourceUsage().maxRSS * 1024, base_bytes: base,
    }));
}

main().catch((error) => {
    console.error(`peer_onnx: ${error.message}`);
    process.exit(1);
});
