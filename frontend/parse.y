/* The grammar of models, plans and machines: LANGUAGE section 5 as amended by
 * DESIGN section 8.  Actions only build nodes; ast.def says what each holds.
 *
 * Every list of statements has an error production that ends at the next newline,
 * so one run reports several mistakes. */
%code requires {
#include "frontend/syntax.h"
}
%code {
#include <stdlib.h>

static int  yylex(Node **value, Span *at, Lexer *lx);
static void yyerror(const Span *at, Lexer *lx, Node **root, const char *msg);

#define YYMAXDEPTH PARSER_STACK_LIMIT
#define YYMALLOC   heap_alloc                        /* for stacks that grow */
#define YYFREE     free
#define YYLLOC_DEFAULT(cur, rhs, n)                                                       \
    ((cur) = (n) ? span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n))                          \
                 : (Span){YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end})

/* '!' says how a built-in op may be split; elsewhere it would be ignored. */
static void check_whole_axis(Lexer *lx, Span at)
{
    if (lx->item != T_OP)
        diag_error(lx->ds, at, "'!' has a meaning in op declarations only");
}

/* A node of the given kind that covers the whole right-hand side. */
#define KIDS(...)     ((Node *[]){__VA_ARGS__}), sizeof((Node *[]){__VA_ARGS__}) / sizeof(Node *)
#define N(kind, ...)  node_make(lx, N_##kind, yyloc, KIDS(__VA_ARGS__))
#define EMPTY(kind)   node_make(lx, N_##kind, yyloc, NULL, 0)
#define ABSENT        EMPTY(NONE_NODE)
#define ADD(list, x)  node_add(lx, list, x)
#define BIN(op, l, o, r) node_binary(lx, B_##op, l, o, r)
}

%define api.pure full
%define api.token.prefix {T_}
%define api.value.type {Node *}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%locations
%expect 0

%param { Lexer *lx }
%parse-param { Node **root }
%initial-action { @$ = (Span){lx->pos, lx->pos}; }

/* What is to be read: handed out by the lexer before the first real token. */
%token A_FILE "a file" AN_EXPR "an expression"

/* Messages list what was expected in this order. */
%token END 0 "end of file"
%token NL "end of line"
%token NAME "a name" INT "an integer" REAL "a number" QUANTITY "a quantity" STRING "a string" DTYPE "a dtype"
%token TRUE "true" FALSE "false" NONE "none" AUTO "auto"
%token MODEL "model" BLOCK "block" OP "op" OWNS "owns" PLAN "plan" DEVICE "device" CLUSTER "cluster" PROFILE "profile" INCLUDE "include"
%token DIM "dim" PARAM "param" LET "let" REQUIRE "require" INPUT "input" WEIGHT "weight" OUTPUT "output"
%token MINIMIZE "minimize" PRECISION "precision" OPTIMIZER "optimizer" DEFAULTS "defaults" FROZEN "frozen"
%token REPEAT "repeat" AS "as" IF "if" THEN "then" ELSE "else" RETURN "return" AND "and" OR "or" NOT "not"
%token FOR "for" ON "on" MESH "mesh" SPLIT "split" KEEP "keep" WHOLE "whole" PAD "pad" BY "by" IN "in" TO "to"
%token STAGE "stage" BEFORE "before" AFTER "after" EVERY "every" RECOMPUTE "recompute" SAVE "save" SHARD "shard"
%token OFFLOAD "offload" PREFER "prefer" SET "set" LEVEL "level"
%token PIPE "|>" ARROW "->" DOTS ".." EQ "==" NE "!=" LE "<=" GE ">="

%precedence "else"
%precedence "|>"
%left "or"
%left "and"
%precedence "not"
%nonassoc "==" "!=" '<' '>' "<=" ">="
%left '+' '-'
%left '*' '/' '%'
%precedence NEGATION

%%

input: A_FILE items                       { (void)yynerrs; }
    | AN_EXPR expr NL                     { *root = $2; } ;
items: %empty                             { $$ = *root = EMPTY(FILE_); }
    | items item                          { $$ = ADD($1, $2); }
    | items NL
    | items error NL                      { yyerrok; } ;
item: include | model | block | op | plan | device | cluster | profile ;
include: "include" STRING NL              { $$ = N(INCLUDE, $2); } ;

/* ---- models ---- */

model: "model" NAME doc '{' stmts '}'     { $$ = N(MODEL, $2, $3, $5); } ;
block: "block" NAME '(' formals ')' results '{' stmts '}'
                                          { $$ = N(BLOCK, $2, $4, $6, $8); } ;
op: "op" NAME '(' formals ')' results owns NL
                                          { $$ = N(OPDECL, $2, $4, $6, $7); } ;
doc: %empty                               { $$ = ABSENT; }
    | STRING ;
formals: %empty                           { $$ = EMPTY(FORMALS); }
    | formal_list ;
formal_list: formal                       { $$ = N(FORMALS, $1); }
    | formal_list ',' formal              { $$ = ADD($1, $3); } ;
formal: tensor
    | "dim" NAME default                  { $$ = N(DIMFORMAL, $2, $3); }
    | NAME default                        { $$ = N(SCALAR, $1, $2); } ;
default: %empty                           { $$ = ABSENT; }
    | '=' expr                            { $$ = $2; } ;
tensor: NAME axes                         { $$ = N(TENSOR, $1, $2); } ;
axes: '[' ']'                             { $$ = EMPTY(AXES); }
    | '[' axis_list ']'                   { $$ = $2; $$->at = @$; } ;
axis_list: axis                           { $$ = N(AXES, $1); }
    | axis_list ',' axis                  { $$ = ADD($1, $3); } ;
axis: NAME
    | NAME '!'                            { $$ = N(WHOLEAXIS, $1); check_whole_axis(lx, @2); }
    | dots ;
dots: ".."                                { $$ = EMPTY(DOTS); } ;
results: %empty                           { $$ = ABSENT; }
    | "->" result_list                    { $$ = $2; } ;
result_list: result                       { $$ = N(RESULTS, $1); }
    | result_list ',' result              { $$ = ADD($1, $3); } ;
result: axes | NAME | tensor ;
owns: %empty                              { $$ = ABSENT; }
    | "owns" owned                        { $$ = $2; } ;
owned: tensor                             { $$ = N(OWNS, $1); }
    | owned ',' tensor                    { $$ = ADD($1, $3); } ;

stmts: %empty                             { $$ = EMPTY(STMTS); }
    | stmts stmt                          { $$ = ADD($1, $2); }
    | stmts NL
    | stmts error NL                      { yyerrok; } ;
stmt: simple NL
    | "repeat" expr "as" NAME index '{' stmts '}'
                                          { $$ = N(REPEAT, $2, $4, $5, $7); }
    | "if" expr '{' stmts '}' otherwise   { $$ = N(IF, $2, $4, $6); }
    | "precision" settings                { $$ = N(PRECISION, $2); }
    | "optimizer" NAME settings           { $$ = N(OPTIMIZER, $2, $3); }
    | "defaults" settings                 { $$ = N(DEFAULTS, $2); } ;
index: %empty                             { $$ = ABSENT; }
    | '[' NAME ']'                        { $$ = $2; } ;
otherwise: %empty                         { $$ = ABSENT; }
    | "else" '{' stmts '}'                { $$ = $3; } ;
simple: dims | params | lets
    | "require" expr                      { $$ = N(REQUIRE, $2, ABSENT); }
    | "require" expr ',' STRING           { $$ = N(REQUIRE, $2, $4); }
    | "input" NAME axes ':' DTYPE         { $$ = N(INPUT, $2, $3, $5); }
    | "weight" NAME axes dtype init frozen
                                          { $$ = N(WEIGHT, $2, $3, $4, $5, $6); }
    | output
    | "minimize" expr                     { $$ = N(MINIMIZE, $2); }
    | return
    | targets '=' expr                    { $$ = N(ASSIGN, $1, $3); }
    | NAME axes '=' expr                  { $$ = N(AXASSIGN, $1, $2, $4); } ;
dims: "dim" binding                       { $$ = N(DIMS, $2); }
    | dims ',' binding                    { $$ = ADD($1, $3); } ;
params: "param" binding                   { $$ = N(PARAMS, $2); }
    | params ',' binding                  { $$ = ADD($1, $3); } ;
lets: "let" binding                       { $$ = N(LETS, $2); }
    | lets ',' binding                    { $$ = ADD($1, $3); } ;
binding: NAME '=' expr doc                { $$ = N(BIND, $1, $3, $4); } ;
dtype: %empty                             { $$ = ABSENT; }
    | ':' DTYPE                           { $$ = $2; } ;
init: %empty                              { $$ = ABSENT; }
    | '~' NAME                            { $$ = $2; }
    | '~' call                            { $$ = $2; } ;
frozen: %empty                            { $$ = ABSENT; }
    | "frozen"                            { $$ = EMPTY(TRUE_); } ;
output: "output" NAME                     { $$ = N(OUTPUT, $2); }
    | output ',' NAME                     { $$ = ADD($1, $3); } ;
return: "return" expr                     { $$ = N(RETURN, $2); }
    | return ',' expr                     { $$ = ADD($1, $3); } ;
targets: NAME                             { $$ = N(TARGETS, $1); }
    | targets ',' NAME                    { $$ = ADD($1, $3); } ;

/* ---- expressions ---- */

expr: value
    | expr "|>" piped                     { $$ = node_pipe(lx, $1, @2, $3); }
    | expr "or" expr                      { $$ = BIN(OR, $1, @2, $3); }
    | expr "and" expr                     { $$ = BIN(AND, $1, @2, $3); }
    | "not" expr                          { $$ = N(NOT, $2); }
    | expr "==" expr                      { $$ = BIN(EQ, $1, @2, $3); }
    | expr "!=" expr                      { $$ = BIN(NE, $1, @2, $3); }
    | expr '<' expr                       { $$ = BIN(LT, $1, @2, $3); }
    | expr '>' expr                       { $$ = BIN(GT, $1, @2, $3); }
    | expr "<=" expr                      { $$ = BIN(LE, $1, @2, $3); }
    | expr ">=" expr                      { $$ = BIN(GE, $1, @2, $3); }
    | expr '+' expr                       { $$ = BIN(ADD, $1, @2, $3); }
    | expr '-' expr                       { $$ = BIN(SUB, $1, @2, $3); }
    | expr '*' expr                       { $$ = BIN(MUL, $1, @2, $3); }
    | expr '/' expr                       { $$ = BIN(DIV, $1, @2, $3); }
    | expr '%' expr                       { $$ = BIN(MOD, $1, @2, $3); }
    | '-' expr %prec NEGATION             { $$ = N(NEG, $2); }
    | "if" expr "then" expr "else" expr   { $$ = N(COND, $2, $4, $6); } ;
value: NAME | INT | REAL | QUANTITY | STRING | DTYPE | TRUE | FALSE | NONE | AUTO | call
    | list ']'                            { $$ = $1; $$->at = @$; }
    | list ',' ']'                        { $$ = $1; $$->at = @$; }
    | '(' expr ')'                        { $$ = $2; $$->at = @$; }
    | selection ']'                       { $$ = $1; $$->at = @$; } ;
list: '[' expr                            { $$ = N(LIST, $2); }
    | list ',' expr                       { $$ = ADD($1, $3); } ;
selection: value '[' selector             { $$ = N(SELECT, $1, $3); }
    | selection ',' selector              { $$ = ADD($1, $3); } ;
selector: NAME | dots
    | NAME '=' expr                       { $$ = N(AT, $1, $3); }
    | NAME '=' expr ".." expr             { $$ = N(SLICE, $1, $3, $5); } ;
call: NAME '(' args ')'                   { $$ = N(CALL, ABSENT, $1, $3); }
    | label NAME '(' args ')'             { $$ = N(CALL, $1, $2, $4); } ;
label: NAME ':' ;
piped: call
    | NAME no_args                        { $$ = N(CALL, ABSENT, $1, $2); }
    | label NAME no_args                  { $$ = N(CALL, $1, $2, $3); } ;
no_args: %empty                           { $$ = EMPTY(ARGS); } ;
args: no_args
    | arg_list
    | arg_list ',' ;
arg_list: arg                             { $$ = N(ARGS, $1); }
    | arg_list ',' arg                    { $$ = ADD($1, $3); } ;
arg: expr
    | NAME '=' expr                       { $$ = N(KWARG, $1, $3); } ;

settings: '{' pairs '}'                   { $$ = $2; $$->at = @$; } ;
pairs: %empty                             { $$ = EMPTY(SETTINGS); }
    | pairs pair NL                       { $$ = ADD($1, $2); }
    | pairs pair ','                      { $$ = ADD($1, $2); }
    | pairs NL
    | pairs error NL                      { yyerrok; } ;
pair: key '=' expr                        { $$ = N(PAIR, $1, $3); } ;
key: NAME                                 { $$ = N(KEY, $1); }
    | key '.' NAME                        { $$ = ADD($1, $3); }
    | key '.' DTYPE                       { $$ = ADD($1, $3); } ;

/* ---- plans ---- */

plan: "plan" '{' rules '}'                { $$ = N(PLAN, ABSENT, $3); }
    | "plan" "for" NAME '{' rules '}'     { $$ = N(PLAN, $3, $5); }
    | "plan" NAME "on" NAME '{' rules '}' { $$ = N(PLANON, $2, $4, $6); } ;
rules: %empty                             { $$ = EMPTY(RULES); }
    | rules rule NL                       { $$ = ADD($1, $2); }
    | rules stage_rule                    { $$ = ADD($1, $2); }
    | rules NL
    | rules error NL                      { yyerrok; } ;
rule: body                                { $$ = N(RULE, ABSENT, $1); }
    | prefer body                         { $$ = N(RULE, $1, $2); } ;
stage_rule: stage '}'                     { $$ = N(RULE, ABSENT, $1); }
    | prefer stage '}'                    { $$ = N(RULE, $1, $2); } ;
prefer: "prefer"                          { $$ = EMPTY(PREFER); } ;
body: mesh
    | "split" names in "by" mref          { $$ = N(SPLIT, $2, $3, $5, ABSENT); }
    | "split" names in "by" mref NAME     { $$ = N(SPLIT, $2, $3, $5, $6); }
    | "keep" names "whole" in             { $$ = N(KEEP, $2, $4); }
    | "pad" NAME "to" INT                 { $$ = N(PAD, $2, $4); }
    | "stage" "before" path               { $$ = N(STAGEBEFORE, $3); }
    | "stage" "after" path                { $$ = N(STAGEAFTER, $3); }
    | "stage" "every" INT "in" path       { $$ = N(STAGEEVERY, $3, $5); }
    | "recompute" path                    { $$ = N(RECOMPUTE, $2, ABSENT); }
    | "recompute" path NAME               { $$ = N(RECOMPUTE, $2, $3); }
    | "save" path                         { $$ = N(SAVE, $2); }
    | "shard" what "by" mref              { $$ = N(SHARD, $2, $4); }
    | "offload" what "to" NAME            { $$ = N(OFFLOAD, $2, $4); }
    | "set" NAME '=' expr                 { $$ = N(SET, $2, $4); }
    | NAME '=' expr                       { $$ = N(SETTING, $1, $3); } ;
stage: "stage" INT '{'                    { $$ = N(STAGEMESH, $2); }
    | stage mesh NL                       { $$ = ADD($1, $2); }
    | stage NL
    | stage error NL                      { yyerrok; } ;
mesh: "mesh" mesh_axis                    { $$ = N(MESH, $2); }
    | mesh ',' mesh_axis                  { $$ = ADD($1, $3); } ;
mesh_axis: NAME '=' mesh_size             { $$ = N(MESHAXIS, $1, $3); } ;
mesh_size: expr                           { $$ = node_mesh_size(lx, $1, NULL, @$); }
    | expr ".." expr                      { $$ = node_mesh_size(lx, $1, $3, @$); } ;
names: NAME                               { $$ = N(NAMES, $1); }
    | names ',' NAME                      { $$ = ADD($1, $3); } ;
in: %empty                                { $$ = ABSENT; }
    | "in" path                           { $$ = $2; } ;
what: NAME
    | "optimizer"                         { $$ = node_leaf(lx, N_NAME, @$); } ;
path: NAME                                { $$ = N(PATH, $1); }
    | path '.' NAME                       { $$ = ADD($1, $3); }
    | path rounds                         { $$ = ADD($1, $2); } ;
rounds: '[' INT ']'                       { $$ = N(INDEX, $2); }
    | '[' INT ".." INT ']'                { $$ = N(INDICES, $2, $4); } ;
mref: mesh_part                           { $$ = N(MREF, $1); }
    | mesh_parts ')'                      { $$ = $1; $$->at = @$; } ;
mesh_parts: '(' mesh_part                 { $$ = N(MREF, $2); }
    | mesh_parts ',' mesh_part            { $$ = ADD($1, $3); } ;
mesh_part: NAME                           { $$ = N(MAXIS, $1, ABSENT); }
    | NAME '.' NAME                       { $$ = N(MAXIS, $1, $3); } ;

/* ---- machines ---- */

device: "device" NAME doc settings        { $$ = N(DEVICE, $2, $3, $4); } ;
profile: "profile" NAME doc settings      { $$ = N(PROFILE, $2, $3, $4); } ;
cluster: cluster_body '}'                 { $$ = $1; $$->at = @$; } ;
cluster_body: "cluster" NAME doc '{'      { $$ = N(CLUSTER, $2, $3); }
    | cluster_body params NL              { $$ = ADD($1, $2); }
    | cluster_body level                  { $$ = ADD($1, $2); }
    | cluster_body pair NL                { $$ = ADD($1, $2); }
    | cluster_body NL
    | cluster_body error NL               { yyerrok; } ;
level: groups NL                          { $$ = ADD($1, ABSENT); }
    | groups settings                     { $$ = ADD($1, $2); } ;
groups: "level" NAME '=' group            { $$ = N(LEVEL, $2, $4); }
    | groups '+' group                    { $$ = ADD($1, $3); } ;
group: count '*' NAME                     { $$ = N(GROUP, $1, $3); } ;
count: value
    | count '*' value                     { $$ = BIN(MUL, $1, @2, $3); } ;

%%

static int yylex(Node **value, Span *at, Lexer *lx)
{
    Token t = lexer_next(lx);
    *value = t.value;
    *at = t.at;
    return t.kind;
}

/* Syntax errors are reported below; what is left is a stack that would overflow. */
static void yyerror(const Span *at, Lexer *lx, Node **root, const char *msg)
{
    (void)msg;
    (void)root;
    if (!lx->stopped && !lx->too_high)
        diag_error(lx->ds, *at, "nested too deeply: the parser would need more than %d places", PARSER_STACK_LIMIT);
}

static int yyreport_syntax_error(const yypcontext_t *context, Lexer *lx, Node **root)
{
    yysymbol_kind_t kind[YYNTOKENS];
    const char *want[YYNTOKENS];
    bool want_name = false;
    int n = yypcontext_expected_tokens(context, kind, YYNTOKENS);
    (void)root;
    for (int i = 0; i < n; i++) {
        want[i] = yysymbol_name(kind[i]);
        want_name |= kind[i] == YYSYMBOL_NAME;
    }
    lexer_unexpected(lx, *yypcontext_location(context), want, n, want_name);
    return 0;
}

/* Parse from the token that says what is to be read. */
static Node *parse(Diags *ds, const Source *source, Span text, int first)
{
    Lexer *lx = NEW(ds->arena, Lexer);
    Node *root = NULL;
    lexer_start(lx, ds, source, text, first);
    yyparse(lx, &root);
    lexer_end(lx);
    return root;
}

Node *syntax_file(Diags *ds, const Source *source)
{
    return parse(ds, source, (Span){source->start, source->start + source->bytes}, T_A_FILE);
}

Node *syntax_expression(Diags *ds, const Source *source, Span text)
{
    return parse(ds, source, text, T_AN_EXPR);
}
