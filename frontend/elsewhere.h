#ifndef FRONTEND_ELSEWHERE_H
#define FRONTEND_ELSEWHERE_H
/* Words that people know from other systems, and what is said where they stand.  NULL: none of them. */

/* A line of help for a setting of a plan. */
const char *elsewhere_setting(const char *word);
/* A line of help for a statement that begins with a word and goes on as `found` where it is wrong. */
const char *elsewhere_statement(const char *word, const char *found);
/* A line of help for an op. */
const char *elsewhere_op(const char *word);
/* The name that a dtype or another value, or a backend has here. */
const char *elsewhere_value(const char *word);
const char *elsewhere_backend(const char *word);

#endif
