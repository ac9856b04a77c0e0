// Numbers as text that a person reads: three significant digits and a unit.
const format = (() => {
    const absent = "–";
    const known = (x) => typeof x === "number" && Number.isFinite(x);

    function digits(x) {
        const size = Math.abs(x);
        if (size === 0) return "0";
        return size >= 100 ? x.toFixed(0) : size >= 10 ? x.toFixed(1) : x.toFixed(2);
    }

    // The largest unit that leaves at least one before the point; the last unit for what is smaller.
    function scaled(x, units) {
        if (!known(x)) return absent;
        const size = Math.abs(x);
        // 0.9995 is written as 1.00: it belongs to this unit already.
        const [factor, unit] = units.find(([f]) => size >= f * 0.9995) || units[units.length - 1];
        return unit ? `${digits(x / factor)} ${unit}` : digits(x / factor);
    }

    const decimal = (unit) => [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]
        .map(([f, prefix]) => [f, prefix + unit]);
    const durations = [[3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

    const integer = (x) => known(x) ? Math.round(x).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",") : absent;
    const count = (x) => known(x) && Math.abs(x) < 1e4 ? integer(x) : scaled(x, decimal(""));
    // Decimal, as the program prints them.
    const bytes = (x) => known(x) && Math.abs(x) < 999.5 ? `${integer(x)} B` : scaled(x, decimal("B"));
    const seconds = (x) => x === 0 ? "0" : scaled(x, durations);
    const flops = (x) => x === 0 ? "0" : scaled(x, decimal("FLOP"));
    const flopRate = (x) => scaled(x, decimal("FLOP/s"));
    const byteRate = (x) => scaled(x, decimal("B/s"));

    function percent(x) {
        if (!known(x)) return absent;
        const p = 100 * x;
        return `${p === 0 ? "0" : Math.abs(p) < 0.1 ? "< 0.1" : Math.abs(p) < 10 ? p.toFixed(1) : p.toFixed(0)} %`;
    }

    // A difference with its sign: +12 %, -3.1 %.
    function change(from, to) {
        if (!known(from) || !known(to)) return absent;
        if (from === to) return "0 %";
        if (from === 0) return "new";
        const p = 100 * (to - from) / from;
        return `${p > 0 ? "+" : "−"}${Math.abs(p) < 10 ? Math.abs(p).toFixed(1) : Math.abs(p).toFixed(0)} %`;
    }

    // A value of a curve: plain in the middle range, with a power of ten outside.
    function value(x) {
        if (!known(x)) return absent;
        const size = Math.abs(x);
        if (size !== 0 && (size < 1e-4 || size >= 1e6)) return x.toExponential(2).replace("e+", "e");
        return size >= 1e4 ? integer(x) : Number(x.toPrecision(4)).toString();
    }

    return { absent, known, integer, count, bytes, seconds, flops, flopRate, byteRate, percent, change, value };
})();
