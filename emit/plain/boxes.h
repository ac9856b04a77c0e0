/* Boxes, each two opposite corners. */

typedef struct box_corners {
    double low[2], high[2], area;
} box_corners;

static box_corners box_at(const T *x)
{
    box_corners b;
    int k;
    for (k = 0; k < 2; k++) {
        const double from = (double)x[k], to = (double)x[2 + k];
        b.low[k] = to < from ? to : from;
        b.high[k] = to > from ? to : from;
    }
    b.area = (b.high[0] - b.low[0]) * (b.high[1] - b.low[1]);
    return b;
}

/* Whether two boxes share more than the threshold's fraction of their union. */
static int boxes_overlap(const box_corners *a, const box_corners *b, double threshold)
{
    double sides[2], shared;
    int k;
    for (k = 0; k < 2; k++) {
        const double low = a->low[k] > b->low[k] ? a->low[k] : b->low[k];
        const double high = a->high[k] < b->high[k] ? a->high[k] : b->high[k];
        if (!(high > low)) return 0;
        sides[k] = high - low;
    }
    shared = sides[0] * sides[1];
    return shared / (a->area + b->area - shared) > threshold;
}

/* Which of n boxes of each list stay: those that no box before them which stays overlaps. */
static void suppress(const T *boxes, uint8_t *stays, int lists, int n, double threshold)
{
    int l, i, k;
    for (l = 0; l < lists; l++, boxes += 4 * n, stays += n)
        for (i = 0; i < n; i++) {
            const box_corners box = box_at(boxes + 4 * i);
            stays[i] = 1;
            for (k = 0; k < i && stays[i]; k++)
                if (stays[k]) {
                    const box_corners kept = box_at(boxes + 4 * k);
                    stays[i] = !boxes_overlap(&kept, &box, threshold);
                }
        }
}
