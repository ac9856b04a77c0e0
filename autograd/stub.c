#include <weft/pipeline.h>
weft_stage *weft_stage_new(const weft_graph *whole, const weft_value *targets, size_t n, bool training, weft_ranks ranks, weft_error *error)
{ (void)whole; (void)targets; (void)n; (void)training; (void)ranks; weft_error_set(error, WEFT_INTERNAL, "stub", "stub"); return NULL; }
void weft_stage_free(weft_stage *stage) { (void)stage; }
weft_graph *weft_stage_graph(weft_stage *stage) { (void)stage; return NULL; }
weft_value weft_stage_value(const weft_stage *stage, weft_value value) { (void)stage; return value; }
bool weft_stage_holds(const weft_stage *stage, const char *param, int rank) { (void)stage; (void)param; (void)rank; return false; }
weft_value weft_stage_grad(weft_stage *stage, weft_value loss, weft_value cotangent, const weft_value *wrt, size_t n, weft_value *grads, const weft_grad_ready *ready, weft_value *pause)
{ (void)stage; (void)loss; (void)cotangent; (void)wrt; (void)n; (void)grads; (void)ready; (void)pause; return WEFT_NO_VALUE; }
weft_value weft_stage_sent(weft_stage *stage) { (void)stage; return WEFT_NO_VALUE; }
