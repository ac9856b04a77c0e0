/* The server of `weft serve`. Threads of libmicrohttpd, one for each connection, read a request,
 * make a job of it and wait (http.c); one thread, the engine, owns the model and answers all jobs
 * (engine.c). A job belongs to the thread that made it, which frees it once the engine has let go. */
#ifndef WEFT_TOOLS_SERVER_H
#define WEFT_TOOLS_SERVER_H

#include "serve.h"

#include "decoding/answer_rule.h"
#include "decoding/growing.h"
#include "decoding/run.h"

#include <weft/batch.h>
#include <weft/chat.h>
#include <weft/embed.h>

#include <pthread.h>

#define SERVER_TOP     20  /* maximum number of alternatives of a token */
#define SERVER_CHOICES 128 /* maximum number of answers of a request */

/* Why a request has no answer, as OpenAI's clients expect it. */
typedef struct answer_error {
    unsigned status;          /* of HTTP; 0: none */
    const char *param, *code; /* NULL: null */
    char message[320];
} answer_error;
/* Sets the error unless there is one; returns false. */
bool answer_fail(answer_error *e, unsigned status, const char *param, const char *format, ...)
    WEFT_PRINTF(4, 5);

/* ---- Jobs ---- */

/* Log probabilities of a token and of the most likely ones in its place. */
typedef struct token_score {
    int32_t token, top[SERVER_TOP];
    double log_prob, top_log_probs[SERVER_TOP];
    size_t end; /* bytes of the text up to and with this token, as far as they are known */
} token_score;

/* One answer to one prompt. */
typedef struct job_choice {
    struct job *job;
    size_t prompt;                /* its number */
    uint64_t id;                  /* of the batcher; 0: none */
    growing_text growing;         /* growing.clear bytes are certain */
    weft_constrained_text *ruled; /* what it must match; NULL: nothing */
    token_score *scores;          /* [n_tokens]; NULL unless they are wanted */
    size_t n_tokens;
    const char *finish; /* "stop" or "length"; NULL until it is over */
    bool over;
    size_t sent, scores_sent; /* of a stream: bytes of the text, tokens */
    bool began, ended;        /* of a stream: its first and its last event were sent */
} job_choice;

typedef enum job_kind { JOB_COMPLETION, JOB_CHAT, JOB_EMBEDDING } job_kind;

typedef struct job {
    struct server *server;
    job_kind kind;
    uint64_t number;
    char id[48];
    long long created; /* seconds of the epoch */
    double deadline;   /* of tool_seconds */
    /* The request. */
    bool stream, wants_usage, wants_scores, base64;
    int top; /* alternatives of each token */
    size_t n;
    int64_t max_tokens;
    weft_sampling_options options;
    stop_texts stops;
    weft_constraint *constraint; /* of all answers; NULL: none */
    encoded_text *prompts;       /* [n_prompts]: to continue, or to embed */
    char **texts;                /* [n_prompts]; NULL where ids were given */
    size_t n_prompts;
    /* The answer. */
    job_choice *choices; /* [n_choices], n for each prompt */
    size_t n_choices, n_over;
    float *vectors; /* [n_prompts][width] */
    answer_error error;
    bool cancelled; /* by the thread that waits */
    bool released;  /* the engine has let go */
    pthread_cond_t changed;
    struct job *next;
} job;

/* ---- The server ---- */

typedef struct server_counts {
    uint64_t answered, refused, failed, aborted; /* requests */
    uint64_t new_tokens;
} server_counts;

typedef struct server {
    const serve_args *a;
    trained_run run;
    const char *name;                                    /* of the model */
    char *key;                                           /* NULL: none is asked for */
    weft_chat_template *chat;                            /* NULL: none */
    char chat_problem[sizeof((weft_error *)0)->message]; /* why */
    weft_batcher *batcher;                               /* of a language model */
    weft_embedder *embedder;                             /* of an encoder */
    int32_t *banned;
    size_t n_banned;
    weft_token_bytes *tokens; /* for constraints; NULL until a request has one */
    int64_t context;          /* positions of a request */
    long long started;
    pthread_t engine;
    pthread_mutex_t reading; /* a body */
    /* The rest is read and written with the lock. */
    pthread_mutex_t lock;
    pthread_cond_t work; /* for the engine */
    job *submitted, **last;
    uint64_t jobs;  /* made so far */
    size_t pending; /* answers that are not over */
    bool stopping;  /* no new requests */
    bool quit;      /* the engine cancels what there is, and ends */
    server_counts counts;
    weft_batcher_info info; /* of the last step */
} server;

/* ---- The engine (engine.c) ---- */

bool engine_start(server *s, weft_error *error);
/* Waits for the end of the engine, whose `quit` was set. */
void engine_join(server *s);
/* Hands a job to the engine. False, with j->error, if the server stops or its queue is full. */
bool engine_submit(server *s, job *j);
/* Waits until the job changes or 0.1 s have passed. With the lock. */
void engine_wait(server *s, job *j);
/* Makes the engine let go of a job, and waits for that. */
void engine_cancel(server *s, job *j);

/* ---- Requests (request.c, prompt.c) ---- */

/* Makes a job of a body; NULL if memory is out. j->error says what is wrong with the body. */
job *request_read(server *s, job_kind kind, const char *body, size_t bytes);
void job_free(job *j);
/* Sets the prompts of a job: of "messages", "prompt" or "input". False with j->error. */
bool prompt_read(job *j, const cJSON *json);

/* ---- Constraints (format.c) ---- */

/* Reads what the answers must match: response_format, guided_json or guided_regex. False with
 * j->error. */
bool format_read(job *j, const cJSON *json);
/* Begins an answer of a job with a constraint. */
bool format_begin(job_choice *c);
/* Fails unless an answer that no token can continue is complete. */
weft_status format_check(const job_choice *c, weft_error *error);
void format_free(job *j);
void format_close(server *s);

/* ---- Answers (answer.c) ---- */

/* Each returns a new text, or NULL if memory is out. cJSON_free frees it. */
char *answer_json(server *s, job *j);
char *answer_error_json(const answer_error *e);
char *answer_models(const server *s, const char *id);
/* The next events of a stream, "" if there are none yet; *end: no more follow. With the lock. */
char *answer_events(server *s, job *j, bool *end);
char *answer_metrics(server *s);

/* ---- HTTP (http.c) ---- */

typedef struct http http;
http *http_open(server *s, weft_error *error);
const char *http_url(const http *h);
/* Ends connections that send no request in time. Called every second or so. */
void http_tend(http *h);
/* Whether any request is in progress. */
bool http_busy(http *h);
/* Closes all connections. */
void http_close(http *h);

#endif
