/* One thread's matrix product, f32.  Blocks as Goto and van de Geijn (2008): A is
 * copied in blocks that stay in the second-level cache, B in panels as wide as the
 * register tile that stay in the first-level one, both in the order in which the
 * tile reads them.  B's panels are copied when the first block of A needs them. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tile.h"

enum {
    WIDE = 2 * LANES,                 /* columns of a register tile */
    DEPTH = 256,                      /* of a block: a panel of B takes half of a 32 KiB cache */
    ROWS = 44 * TILE_ROWS,            /* of a block of A: 264 KiB */
    COLUMNS = 1024,                   /* of the copied part of B */
    GROUP = 4 * WIDE,                 /* columns of B copied at once */
    FEW = 16,                         /* rows of a transposed A read at once */
    LINE = 16                         /* floats of a cache line */
};

/* The copies of a thread. */
typedef struct Copies {
    _Alignas(64) float a[ROWS * DEPTH];
    _Alignas(64) float b[COLUMNS * DEPTH];
} Copies;

typedef struct Product { const Gemm *g; const float *a, *b; float *c; Copies *copy; } Product;
typedef struct Block { int64_t first, n; } Block;    /* of rows, columns or k */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* n items in parts of at most `most`, as equal as multiples of `grain` can be. */
static int64_t even_part(int64_t n, int64_t most, int64_t grain)
{
    int64_t parts = (n + most - 1) / most, each = (n + parts - 1) / parts;
    return (each + grain - 1) / grain * grain;
}

/* Rows `rows` of A at depths [0, depth) as one panel: element (r, x) at x TILE_ROWS + r,
 * rows past the end zero. */
static void copy_panel(const float *from, int64_t row, int64_t column, int64_t rows, int64_t depth, float alpha, float *to)
{
    for (int64_t x = 0; x < depth; x++)
        for (int64_t y = 0; y < TILE_ROWS; y++)
            to[x * TILE_ROWS + y] = y < rows ? alpha * from[y * row + x * column] : 0;
}

/* The same for a whole panel of numbers taken as they are. */
static void copy_full_panel(const float *from, int64_t row, int64_t column, int64_t depth, float *to)
{
    if (row == 1)
        for (int64_t x = 0; x < depth; x++)
            memcpy(to + x * TILE_ROWS, from + x * column, sizeof *to * TILE_ROWS);
    else
        for (int64_t x = 0; x < depth; x++)
            for (int64_t y = 0; y < TILE_ROWS; y++)
                to[x * TILE_ROWS + y] = from[y * row + x];
}

/* Rows i and depths k of A in panels of TILE_ROWS.  A stored transposed is read a few
 * of its rows at a time, so that a line of the cache is used for all its panels. */
static void copy_a(const Product *p, Block k, Block i, float *to)
{
    const Gemm *g = p->g;
    int64_t row = g->ta ? 1 : g->lda, column = g->ta ? g->lda : 1, step = g->ta ? FEW : k.n;
    const float *from = p->a + i.first * row + k.first * column, alpha = (float)g->alpha;
    for (int64_t x = 0; x < k.n; x += step)
        for (int64_t r = 0; r < i.n; r += TILE_ROWS) {
            const float *at = from + r * row + x * column;
            float *panel = to + r * k.n + x * TILE_ROWS;
            if (i.n - r < TILE_ROWS || alpha != 1)
                copy_panel(at, row, column, i.n - r, least(step, k.n - x), alpha, panel);
            else
                copy_full_panel(at, row, column, least(step, k.n - x), panel);
        }
}

/* Columns [j, j + n) and k of B, n at most GROUP, in panels of WIDE: element (x, c) of
 * a panel at x WIDE + c, columns past the end zero. */
static void copy_b(const Product *p, Block k, int64_t j, int64_t n, float *to)
{
    const int64_t row = p->g->ldb, panel = WIDE * k.n;
    if (p->g->tb) {
        for (int64_t c = 0; c < n; c += WIDE, to += panel)
            tile_transpose(p->b + (j + c) * row + k.first, row, least(WIDE, n - c), k.n, to, WIDE, WIDE);
        return;
    }
    const float *from = p->b + k.first * row + j;
    for (int64_t x = 0; x < k.n; x++, from += row, to += WIDE)
        for (int64_t c = 0; c < n; c += WIDE)
            for (int64_t l = 0; l < WIDE; l += LANES)
                vec_store(to + c / WIDE * panel + l, vec_take(from + c + l, n - c - l > 0 ? n - c - l : 0));
}

/* Lines of memory to be asked for: `inner` of them in a row, rows `step` floats apart. */
typedef struct Ahead { const float *p; int64_t inner, step, at; } Ahead;

/* The part of B that is copied next, or the copy itself. */
static Ahead look_ahead(const Product *p, Block k, int64_t j, const float *copied)
{
    if (copied)
        return (Ahead){copied, INT64_MAX, 0, 0};
    if (p->g->tb)
        return (Ahead){p->b + j * p->g->ldb + k.first, (k.n + LINE - 1) / LINE, p->g->ldb, 0};
    return (Ahead){p->b + k.first * p->g->ldb + j, GROUP / LINE, p->g->ldb, 0};
}

TILE_INLINE void ask_for(Ahead *a, int64_t lines)
{
    for (; lines > 0; lines--) {
        __builtin_prefetch(a->p + a->at * LINE, 0, 2);
        if (++a->at == a->inner) {
            a->at = 0;
            a->p += a->step;
        }
    }
}

/* A register tile at the edge of C. */
static void edge(TileA a, TileB b, int64_t depth, TileC c, bool add, int64_t m, int64_t n)
{
    float tile[TILE_ROWS * WIDE];
    tile_block(a, b, depth, (TileC){tile, WIDE}, false, TILE_ROWS, 2);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c.p[i * c.row + j] = (add ? c.p[i * c.row + j] : 0) + tile[i * WIDE + j];
}

/* C's rows [0, m) of one panel; with every register tile a few lines of what comes
 * next are asked for. */
static void multiply_panel(const float *a, const float *b, Ahead *ahead, int64_t depth, TileC c, bool add, int64_t m, int64_t n)
{
    TileB panel = {b, WIDE};
    int64_t tiles = (m + TILE_ROWS - 1) / TILE_ROWS, lines = (depth * WIDE / LINE + tiles - 1) / tiles;
    for (; m > 0; m -= TILE_ROWS, a += TILE_ROWS * depth, c.p += TILE_ROWS * c.row) {
        TileA rows = {a, 1, TILE_ROWS};
        ask_for(ahead, lines);
        if (m < TILE_ROWS || n < WIDE) {
            edge(rows, panel, depth, c, add, least(m, TILE_ROWS), n);
            continue;
        }
        for (int i = 0; i < TILE_ROWS; i++)
            __builtin_prefetch(c.p + (TILE_ROWS + i) * c.row, 1);
        tile_block(rows, panel, depth, c, add, TILE_ROWS, 2);
    }
}

/* A block of C: rows i and columns j.  B's panels are copied a group at a time, because
 * they lie side by side in its rows, or are there already (`copied`). */
static void multiply_block(const Product *p, Block k, Block i, Block j, bool copied)
{
    const Gemm *g = p->g;
    int64_t room = g->m > i.n ? COLUMNS : GROUP;
    Ahead ahead = {0};
    for (int64_t x = 0; x < j.n; x += WIDE) {
        float *b = p->copy->b + x % room * k.n;
        if (x % GROUP == 0) {
            if (!copied)
                copy_b(p, k, j.first + x, least(GROUP, j.n - x), b);
            ahead = look_ahead(p, k, j.first + x + GROUP, copied ? b + GROUP * k.n : NULL);
        }
        multiply_panel(p->copy->a, b, &ahead, k.n, (TileC){p->c + i.first * g->ldc + j.first + x, g->ldc},
                       k.first > 0 || g->beta != 0, i.n, least(WIDE, j.n - x));
    }
}

/* Columns j of C. */
static void multiply_columns(const Product *p, Block j)
{
    const Gemm *g = p->g;
    int64_t deep = even_part(g->k, DEPTH, 8), high = even_part(g->m, ROWS, TILE_ROWS);
    for (int64_t k = 0; k < g->k; k += deep) {
        int64_t depth = least(deep, g->k - k);
        for (int64_t i = 0; i < g->m; i += high) {
            int64_t m = least(high, g->m - i);
            copy_a(p, (Block){k, depth}, (Block){i, m}, p->copy->a);
            multiply_block(p, (Block){k, depth}, (Block){i, m}, j, i > 0);
        }
    }
}

void CPU_PASTE(multiply, f32, ISA)(const Gemm *g, const float *a, const float *b, float *c)
{
    static _Thread_local Copies copy;
    for (int64_t i = 0; g->beta != 0 && g->beta != 1 && i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            c[i * g->ldc + j] *= (float)g->beta;
    int64_t wide = even_part(g->n, COLUMNS, WIDE);
    Product p = {g, a, b, c, &copy};
    for (int64_t j = 0; j < g->n; j += wide)
        multiply_columns(&p, (Block){j, least(wide, g->n - j)});
}
