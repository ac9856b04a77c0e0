"use strict";
/* The functions of digits.h, of the module of WebAssembly that build.sh makes, in browsers and Node.js. */

/* What the module imports of WASI: the clock, an empty environment, and an end of the program. It
 * opens no files and prints nothing. */
function wasi(memory) {
    const view = () => new DataView(memory().buffer);
    const bad_descriptor = () => 8;
    return {
        environ_sizes_get(count, bytes) {
            view().setUint32(count, 0, true);
            view().setUint32(bytes, 0, true);
            return 0;
        },
        environ_get: () => 0,
        clock_time_get(clock, precision, time) {
            const ms = clock === 0 ? Date.now() : performance.now();
            view().setBigUint64(time, BigInt(Math.round(ms * 1e6)), true);
            return 0;
        },
        fd_close: bad_descriptor,
        fd_seek: bad_descriptor,
        fd_write: bad_descriptor,
        proc_exit(status) {
            throw new Error(`the module ended with status ${status}`);
        },
    };
}

/* The network, made from the bytes of the module, and of images and labels: those to train on, then
 * those to validate with. */
async function load_digits(wasm, images, labels) {
    const { instance } = await WebAssembly.instantiate(wasm, { wasi_snapshot_preview1: wasi(() => c.memory) });
    const c = instance.exports;
    const bytes = (at, n) => new Uint8Array(c.memory.buffer, at, n);
    const text = (at) => new TextDecoder().decode(bytes(at, bytes(at, 1024).indexOf(0)));
    const checked = (good, value) => {
        if (!good) throw new Error(text(c.digits_error()));
        return value;
    };
    c._initialize();
    bytes(c.digits_images(), images.length).set(images);
    bytes(c.digits_labels(), labels.length).set(labels);
    const image = c.malloc(64);
    return {
        start: (seed) => checked(c.digits_start(seed)),
        train(n) {
            const loss = c.digits_train(n);
            return checked(loss === loss, loss);
        },
        accuracy: () => c.digits_accuracy(),
        hash: () => text(c.digits_hash()),
        /* The probabilities of the ten digits, of an image of 64 pixels, 0 to 16. */
        read(pixels) {
            bytes(image, 64).set(pixels);
            const at = c.digits_read(image);
            return checked(at, [...new Float32Array(c.memory.buffer, at, 10)]);
        },
    };
}

if (typeof module !== "undefined") module.exports = load_digits;
