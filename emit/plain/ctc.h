/* Connectionist temporal classification. State s of an alignment is the blank for even s, label s / 2 of
 * the target for odd s. */

typedef struct ctc_sequence {
    const T *log_probs; /* of the first frame; frames are `stride` apart */
    int stride, frames, states, blank;
    const int32_t *target;
    int bad; /* a length or label is out of range */
} ctc_sequence;

/* Sequence i of a batch. */
static ctc_sequence ctc_sequence_at(const T *log_probs, const int32_t *targets,
                                    const int32_t *frames, const int32_t *lengths, int i,
                                    int max_frames, int batch, int classes, int labels, int blank)
{
    ctc_sequence q;
    int k;
    q.log_probs = log_probs + i * classes;
    q.stride = batch * classes;
    q.target = targets + i * labels;
    q.blank = blank;
    q.bad = frames[i] < 0 || frames[i] > max_frames || lengths[i] < 0 || lengths[i] > labels;
    q.frames = q.bad ? 0 : frames[i];
    q.states = q.bad ? 1 : 2 * lengths[i] + 1;
    for (k = 0; k < q.states / 2; k++)
        q.bad |= q.target[k] < 0 || q.target[k] >= classes || q.target[k] == blank;
    return q;
}

static int ctc_label(const ctc_sequence *q, int s)
{
    return s % 2 ? q->target[s / 2] : q->blank;
}

/* Whether an alignment may skip the blank before state s. */
static int ctc_skips(const ctc_sequence *q, int s)
{
    return s % 2 && s > 1 && q->target[s / 2] != q->target[s / 2 - 1];
}

/* ln(e^a + e^b + e^c) */
static double ctc_log_sum(double a, double b, double c)
{
    double top = a > b ? a : b;
    top = c > top ? c : top;
    if (top == -(double)INFINITY) return top;
    return top + vm_log_f64(vm_exp_f64(a - top) + vm_exp_f64(b - top) + vm_exp_f64(c - top));
}

/* The logarithms of the probabilities of the frames up to t with an end in each state. */
static void ctc_forward(const ctc_sequence *q, int t, const double *last, double *next)
{
    const double never = -(double)INFINITY;
    const T *x = q->log_probs + t * q->stride;
    int s;
    for (s = 0; s < q->states; s++) {
        const double reach =
            t ? ctc_log_sum(last[s], s ? last[s - 1] : never, ctc_skips(q, s) ? last[s - 2] : never)
            : s < 2 ? 0
                    : never;
        next[s] = reach + (double)x[ctc_label(q, s)];
    }
}

/* Those of the frames after t with a start in each state. */
static void ctc_backward(const ctc_sequence *q, int t, const double *later, double *now)
{
    const double never = -(double)INFINITY;
    const T *x = q->log_probs + (t + 1) * q->stride;
    int s, k;
    for (s = 0; s < q->states; s++) {
        double reach[3] = {never, never, never};
        now[s] = s >= q->states - 2 ? 0 : never;
        if (t == q->frames - 1) continue;
        for (k = 0; k < 3 && s + k < q->states; k++)
            if (k < 2 || ctc_skips(q, s + k))
                reach[k] = later[s + k] + (double)x[ctc_label(q, s + k)];
        now[s] = ctc_log_sum(reach[0], reach[1], reach[2]);
    }
}

/* The logarithm of the target's probability, from the last frame's. */
static double ctc_total(const ctc_sequence *q, const double *alpha)
{
    const double never = -(double)INFINITY;
    if (q->frames == 0) return q->states == 1 ? 0 : never;
    return ctc_log_sum(alpha[q->states - 1], q->states > 1 ? alpha[q->states - 2] : never, never);
}

/* Losses [batch] of log_probs [max_frames, batch, classes] and targets [batch, labels]. `space` has room
 * for two rows of states. 1 if a length or label is out of range. */
static int ctc(const T *log_probs, const int32_t *targets, const int32_t *frames,
               const int32_t *lengths, T *loss, double *space, int max_frames, int batch,
               int classes, int labels, int blank)
{
    int i, t, bad = 0;
    for (i = 0; i < batch; i++) {
        const ctc_sequence q = ctc_sequence_at(log_probs, targets, frames, lengths, i, max_frames,
                                               batch, classes, labels, blank);
        const int n = q.states;
        bad |= q.bad;
        if (q.bad) continue;
        for (t = 0; t < q.frames; t++)
            ctc_forward(&q, t, space + t % 2 * n, space + (t + 1) % 2 * n);
        loss[i] = (T)-ctc_total(&q, space + q.frames % 2 * n);
    }
    return bad;
}

/* `space` has room for a row of states for each frame, and for two more. */
static int ctc_grad(const T *log_probs, const int32_t *targets, const int32_t *frames,
                    const int32_t *lengths, const T *dloss, T *dx, double *space, int max_frames,
                    int batch, int classes, int labels, int blank)
{
    int i, t, s, bad = 0;
    for (t = 0; t < max_frames * batch * classes; t++) dx[t] = 0;
    for (i = 0; i < batch; i++) {
        const ctc_sequence q = ctc_sequence_at(log_probs, targets, frames, lengths, i, max_frames,
                                               batch, classes, labels, blank);
        const int n = q.states;
        double *beta = space + q.frames * n, total;
        bad |= q.bad;
        if (q.bad) continue;
        for (t = 0; t < q.frames; t++)
            ctc_forward(&q, t, space + (t ? t - 1 : 0) * n, space + t * n);
        total = ctc_total(&q, space + (q.frames ? q.frames - 1 : 0) * n);
        if (total == -(double)INFINITY) continue;
        for (t = q.frames - 1; t >= 0; t--) {
            const double *alpha = space + t * n, *now = beta + t % 2 * n;
            T *d = dx + t * q.stride + i * classes;
            ctc_backward(&q, t, beta + (t + 1) % 2 * n, beta + t % 2 * n);
            for (s = 0; s < n; s++)
                d[ctc_label(&q, s)] -=
                    (T)((double)dloss[i] * vm_exp_f64(alpha[s] + now[s] - total));
        }
    }
    return bad;
}
