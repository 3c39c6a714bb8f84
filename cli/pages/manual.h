#ifndef CLI_PAGES_MANUAL_H
#define CLI_PAGES_MANUAL_H
/* A page of docs/ as a manual page.  Of Markdown it knows what those pages have: one title, headings, paragraphs,
 * items, tables, blocks of code, `code`, **bold** and links. */

/* From standard input to standard output, as NAME(5). */
void manual_print(const char *name, const char *version);

#endif
