/* weft bench --against: compares measurements with those of an earlier `weft bench --json`. */
#ifndef WEFT_TOOLS_AGAINST_H
#define WEFT_TOOLS_AGAINST_H

#include "tool.h"

/* The output of an earlier run. */
typedef struct against_file {
    const char *path;
    cJSON *json;
    const cJSON *rows; /* "workloads" */
} against_file;
/* Reads the file and checks every row. against_close frees it, also after an error. */
weft_status against_open(against_file *old, const char *path, weft_error *error);
void against_close(against_file *old);
/* Warns on standard error if the processor, the kernels or the backend differ from those of
 * `machine` (weft__add_machine). */
void against_warn(const against_file *old, const cJSON *machine);

/* What two measurements are compared by. */
typedef struct against_figures {
    double min_ms;
    double gemm_gflops; /* of the same run */
    double arena_bytes;
    double plan_bytes; /* arena, states and the threads' workspaces */
} against_figures;

/* A row of the file. */
typedef struct against_row {
    against_figures figures;
    weft_precision precision;
    int threads;
} against_row;
/* Finds the row that measured the same as `row`: its workload or model, "model", "options" and
 * "train". */
weft_status against_find(const against_file *old, const cJSON *row, against_row *found,
                         weft_error *error);

/* Growth since the old measurement; 0.05 is 5 % more. */
typedef struct against_result {
    against_figures old, now;
    double
        time; /* of min_ms * gemm_gflops, which depends less on the machine's state than min_ms */
    double arena, plan;
    bool slower; /* time is above the limit */
} against_result;
against_result against_compare(const against_figures *old, const against_figures *now,
                               double limit);

/* Prints the heads of the columns, and a line. */
void against_print_head(void);
void against_print(const char *name, const against_result *result);
/* Adds the result to a row of JSON, as "against". */
void against_add(cJSON *row, const against_result *result);

#endif
