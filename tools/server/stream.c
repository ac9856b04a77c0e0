/* Answers as streams of OpenAI's events: each has the text and the log probabilities that are certain
 * and not sent yet. */
#include "answer.h"

#include "json/tree.h"

#include <stdlib.h>
#include <string.h>

typedef struct events {
    char *text;
    size_t bytes;
    bool no_memory;
} events;

/* Appends an event; `json` (NULL: memory is out) is freed. */
static void add_event(events *e, json_maker *m, cJSON *json)
{
    char *data = answer_print(m, json);
    const size_t n = data ? strlen(data) : 0;
    char *grown = data ? realloc(e->text, e->bytes + n + 9) : NULL;
    if (grown) {
        e->text = grown;
        e->bytes += (size_t)sprintf(grown + e->bytes, "data: %s\n\n", data);
    }
    e->no_memory |= !grown;
    cJSON_free(data);
}

/* An event of an answer, without its text. *item becomes where that belongs. */
static cJSON *begin_event(const job_choice *c, json_maker *m, const char *finish, cJSON **item)
{
    const job *j = c->job;
    cJSON *json =
        answer_begin(j, m, j->kind == JOB_CHAT ? "chat.completion.chunk" : "text_completion");
    *item = json_add_object(m, json_add_array(m, json, "choices"), NULL);
    json_add_number(m, *item, "index", (double)(c - j->choices));
    if (finish)
        json_add_text(m, *item, "finish_reason", finish);
    else
        answer_null(m, *item, "finish_reason");
    if (j->wants_usage) answer_null(m, json, "usage");
    return json;
}

static void add_first(events *e, job_choice *c)
{
    json_maker m = {false};
    cJSON *item, *json = begin_event(c, &m, NULL, &item);
    cJSON *delta = json_add_object(&m, item, "delta");
    json_add_text(&m, delta, "role", "assistant");
    json_add_text(&m, delta, "content", "");
    add_event(e, &m, json);
}

/* The text that is certain and not sent yet. */
static void add_more(events *e, job_choice *c)
{
    json_maker m = {false};
    cJSON *item, *json = begin_event(c, &m, NULL, &item);
    const bool chat = c->job->kind == JOB_CHAT;
    answer_text(&m, chat ? json_add_object(&m, item, "delta") : item, chat ? "content" : "text", c,
                c->sent, c->growing.clear);
    answer_scores(c, &m, item, c->scores_sent, c->n_tokens - c->scores_sent);
    add_event(e, &m, json);
    c->sent = c->growing.clear;
    c->scores_sent = c->n_tokens;
}

static void add_last(events *e, job_choice *c)
{
    json_maker m = {false};
    cJSON *item, *json = begin_event(c, &m, c->finish ? c->finish : "stop", &item);
    if (c->job->kind == JOB_CHAT)
        json_add_object(&m, item, "delta");
    else
        json_add_text(&m, item, "text", "");
    answer_null(&m, item, "logprobs");
    add_event(e, &m, json);
}

static void add_end(events *e, const job *j)
{
    if (j->wants_usage) {
        json_maker m = {false};
        cJSON *json =
            answer_begin(j, &m, j->kind == JOB_CHAT ? "chat.completion.chunk" : "text_completion");
        json_add_array(&m, json, "choices");
        answer_usage(j, &m, json);
        add_event(e, &m, json);
    }
    char *grown = realloc(e->text, e->bytes + 32);
    e->no_memory |= !grown;
    if (!grown) return;
    e->text = grown;
    e->bytes += (size_t)sprintf(grown + e->bytes, "data: [DONE]\n\n");
}

/* The error of a stream that has begun is its last event. */
static void add_failure(events *e, const answer_error *error)
{
    json_maker m = {false};
    char *text = answer_error_json(error);
    cJSON *json = text ? weft__json_parse(text, strlen(text), NULL) : NULL;
    cJSON_free(text);
    m.no_memory = !json;
    add_event(e, &m, json);
}

char *answer_events(server *s, job *j, bool *end)
{
    events e = {NULL, 0, false};
    (void)s;
    *end = j->error.status || j->n_over == j->n_choices;
    for (size_t i = 0; i < j->n_choices && !j->error.status; i++) {
        job_choice *c = &j->choices[i];
        if (c->ended) continue;
        if (!c->began && j->kind == JOB_CHAT) add_first(&e, c);
        c->began = true;
        if (c->sent < c->growing.clear || (c->over && c->scores_sent < c->n_tokens))
            add_more(&e, c);
        if (c->over) add_last(&e, c);
        c->ended = c->over;
    }
    if (j->error.status)
        add_failure(&e, &j->error);
    else if (*end)
        add_end(&e, j);
    char *text = e.no_memory ? NULL : e.text ? e.text : calloc(1, 1);
    if (!text) free(e.text);
    return text;
}
