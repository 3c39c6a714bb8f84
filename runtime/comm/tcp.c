/* A Net by TCP: a connection between every two ranks, for those that torchrun or a script started.
 *
 * Messages travel whole if they are small, and are kept where nobody waits for them yet.  Of a larger one the sender
 * asks first, and its bytes follow in parts when the receiver has a place for them: so nothing large is ever kept, a
 * connection always goes on, and small messages, signs of life among them, pass between the parts of large ones.
 * There is no thread: whoever sends or asks for what has come moves all that can be moved. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/comm/meet.h"
#include "runtime/comm/net.h"
#include "runtime/comm/world.h"

#ifndef PPLAN_VERSION
#define PPLAN_VERSION "unknown"
#endif

enum { WHOLE_BYTES = 4096, PART_BYTES = 1 << 20 };   /* of a message that is not asked for; of those that are, at a time */

typedef enum FrameKind { FRAME_whole, FRAME_asks, FRAME_granted, FRAME_part } FrameKind;

/* What goes before the bytes of a message or of its part, or alone; numbers of the message at either end. */
typedef struct Frame { int32_t kind, tag; int64_t bytes; uint32_t sender, receiver; } Frame;

/* A message that is sent, is received, or has come before it was asked for. */
typedef struct Item {
    struct Item *next;                /* in the one list that has it */
    Frame        frame;               /* to go out, or as it came */
    char        *data; int64_t bytes; /* the caller's; what fits there, or is to come */
    int64_t      moved;               /* of a message in parts */
    char        *kept;                /* WHOLE_BYTES of its own, for what has come too early; NULL: never needed */
    int          peer;                /* NET_ANY: not known yet */
    uint32_t     number;
    NetState     state;
} Item;

typedef struct List { Item *first, **last; } List;

typedef struct Peer {
    int     fd;                       /* -1: this rank */
    bool    gone;
    List    out, parts;               /* items to go; those of which parts go meanwhile */
    Item   *going; int64_t written;   /* of which a frame is on its way, and bytes of that */
    Frame   in; int64_t have;         /* as it comes; bytes of it and of what follows */
    Item   *into;                     /* takes the part that follows */
    char    whole[WHOLE_BYTES];
} Peer;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int            me, nrank;
static Peer          *peer;           /* of each rank */
static struct pollfd *polled;
static List           wanted, early;  /* receives without a message; messages without a receive */
static Item         **item; static uint32_t nitem;   /* by number */
static Item          *spare;

/* ---- items ---- */

static void append(List *l, Item *i)
{
    i->next = NULL;
    if (!l->first)
        l->last = &l->first;
    *l->last = i;
    l->last = &i->next;
}

static void take_out(List *l, Item *i)
{
    Item **at = &l->first;
    while (*at != i)
        at = &(*at)->next;
    *at = i->next;
    if (l->last == &i->next)
        l->last = at;
}

/* Those that are over are used again: a run soon makes no more. */
static Item *new_item(int of, int tag, void *data, int64_t bytes)
{
    Item *i = spare;
    if (i) {
        spare = i->next;
    } else {
        Item **more = realloc(item, (nitem + 1) * sizeof *item);
        item = more ? more : item;
        i = more ? calloc(1, sizeof *i) : NULL;
        if (!i)
            return NULL;
        i->number = nitem;
        item[nitem++] = i;
    }
    char *kept = i->kept;
    *i = (Item){.frame = {.tag = tag, .bytes = bytes}, .data = data, .bytes = bytes, .kept = kept, .peer = of, .number = i->number, .state = NET_UNDER_WAY};
    return i;
}

static void free_item(Item *i)
{
    i->next = spare;
    spare = i;
}

/* ---- going out ---- */

static void lose(Peer *p)
{
    p->gone = true;                   /* who waits for it hears so from the pulse */
}

/* Bytes behind a frame. */
static int64_t body_of(const Frame *f)
{
    return f->kind == FRAME_whole || f->kind == FRAME_part ? f->bytes : 0;
}

static Item *next_to_go(Peer *p)
{
    List *l = p->out.first ? &p->out : &p->parts;
    Item *i = l->first;
    if (!i)
        return NULL;
    take_out(l, i);
    if (i->frame.kind == FRAME_part)
        i->frame.bytes = i->bytes - i->moved < PART_BYTES ? i->bytes - i->moved : PART_BYTES;
    return i;
}

static void has_gone(Peer *p, Item *i)
{
    i->moved += body_of(&i->frame);
    if (i->frame.kind == FRAME_part && i->moved < i->bytes)
        append(&p->parts, i);
    else if (i->frame.kind == FRAME_part || i->frame.kind == FRAME_whole)
        i->state = NET_DONE;
}

/* As much as the connection takes. */
static void write_some(Peer *p)
{
    while (!p->gone && (p->going || (p->going = next_to_go(p)))) {
        Item *i = p->going;
        int64_t head = sizeof i->frame, all = head + body_of(&i->frame), at = p->written, in_body = at > head ? at - head : 0;
        struct iovec v[2] = {{(char *)&i->frame + (at < head ? at : head), at < head ? (size_t)(head - at) : 0},
                             {i->data + i->moved + in_body, (size_t)(all - head - in_body)}};
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            lose(p);
        if (n <= 0)
            return;
        p->written += n;
        if (p->written < all)
            continue;
        p->written = 0;
        p->going = NULL;
        has_gone(p, i);
    }
}

static void go(int to, Item *i, FrameKind kind)
{
    i->frame.kind = (int32_t)kind;
    append(kind == FRAME_part ? &peer[to].parts : &peer[to].out, i);
    write_some(&peer[to]);
}

/* ---- coming in ---- */

static Item *find(List *l, int from, int tag)
{
    Item *i = l->first;
    while (i && (i->frame.tag != tag || (i->peer != from && i->peer != NET_ANY && from != NET_ANY)))
        i = i->next;
    return i;
}

/* A message that was asked for, and the place for it. */
static void grant(Item *to, int from, const Frame *asked)
{
    to->peer = from;
    to->bytes = asked->bytes;
    to->frame = (Frame){.sender = asked->sender, .receiver = to->number};
    go(from, to, FRAME_granted);
}

static void fill(Item *to, const char *data, int64_t bytes)
{
    memcpy(to->data, data, (size_t)bytes);
    to->bytes = bytes;
    to->state = NET_DONE;
}

static bool keep(int from, const Frame *f, const char *data)
{
    Item *i = new_item(from, f->tag, NULL, f->bytes);
    if (!i || (data && !i->kept && !(i->kept = malloc(WHOLE_BYTES))))
        return false;
    i->frame = *f;
    if (data)
        memcpy(i->kept, data, (size_t)f->bytes);
    append(&early, i);
    return true;
}

/* A frame is there, and a small message with it; false: it is none that a rank sends. */
static bool act(int from, Peer *p)
{
    const Frame *f = &p->in;
    Item *i;
    switch (f->kind) {
    case FRAME_whole:
    case FRAME_asks:
        i = find(&wanted, from, f->tag);
        if (!i)
            return keep(from, f, f->kind == FRAME_whole ? p->whole : NULL);
        if (f->bytes > i->bytes)
            return false;
        take_out(&wanted, i);
        if (f->kind == FRAME_whole)
            fill(i, p->whole, f->bytes);
        else
            grant(i, from, f);
        return true;
    case FRAME_granted:
        if (f->sender >= nitem)
            return false;
        item[f->sender]->frame.receiver = f->receiver;
        go(from, item[f->sender], FRAME_part);
        return true;
    default:
        p->into->moved += f->bytes;
        if (p->into->moved == p->into->bytes)
            p->into->state = NET_DONE;
        return true;
    }
}

/* Where the bytes behind a frame go; NULL: nowhere, it is none that a rank sends. */
static char *place_of(Peer *p)
{
    const Frame *f = &p->in;
    if (f->kind < FRAME_whole || f->kind > FRAME_part || f->bytes < 0)
        return NULL;
    if (f->kind != FRAME_part)
        return body_of(f) <= WHOLE_BYTES ? p->whole : NULL;
    p->into = f->receiver < nitem ? item[f->receiver] : NULL;
    return p->into && f->bytes <= p->into->bytes - p->into->moved ? p->into->data + p->into->moved : NULL;
}

/* The next bytes that have come of a frame and what follows it; false: there are none, or no more to be had. */
static bool read_more(Peer *p, char *to, int64_t end)
{
    ssize_t n = recv(p->fd, to, (size_t)(end - p->have), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        lose(p);
    p->have += n > 0 ? n : 0;
    return n > 0;
}

static void read_some(int from)
{
    Peer *p = &peer[from];
    const int64_t head = sizeof p->in;
    while (!p->gone) {
        if (p->have < head && !read_more(p, (char *)&p->in + p->have, head))
            return;
        if (p->have < head)
            continue;
        int64_t all = head + body_of(&p->in);
        char *place = place_of(p);
        if (place && p->have < all && !read_more(p, place + p->have - head, all))
            return;
        if (place && p->have < all)
            continue;
        p->have = 0;
        if (!place || !act(from, p)) {
            fprintf(stderr, "error: rank %d received from rank %d what no rank sends\n", me, from);
            lose(p);
        }
    }
}

static void move_all(void)
{
    for (int i = 0; i < nrank; i++)
        polled[i] = (struct pollfd){.fd = peer[i].gone ? -1 : peer[i].fd, .events = (short)(POLLIN | (peer[i].going ? POLLOUT : 0))};
    if (poll(polled, (nfds_t)nrank, 0) <= 0)
        return;
    for (int i = 0; i < nrank; i++) {
        if (polled[i].revents & POLLOUT)
            write_some(&peer[i]);
        if (polled[i].revents & ~POLLOUT)
            read_some(i);
    }
}

/* ---- the table ---- */

static int number_in(const char *name)
{
    const char *text = getenv(name);
    char *end;
    long n = text ? strtol(text, &end, 10) : -1;
    return text && *text && !*end && n >= 0 && n <= INT32_MAX ? (int)n : -1;
}

static const char *text_in(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

/* torchrun listens at that port itself, if it says so: then the next one is rank 0's. */
static int meeting_port(void)
{
    return number_in("MASTER_PORT") + (strcmp(text_in("TORCHELASTIC_USE_AGENT_STORE"), "True") == 0);
}

static bool check(const char *name, int n, int least, int most)
{
    if (n < least || n > most)
        fprintf(stderr, "error: %s='%s': expected %d to %d\n", name, text_in(name), least, most);
    return n >= least && n <= most;
}

static bool tcp_open(int *rank, int *n)
{
    int fd[WORLD_RANKS];
    Meeting m = {.host = text_in("MASTER_ADDR"), .rank = number_in("RANK"), .nrank = number_in("WORLD_SIZE"), .patience = 300};
    if (!check("WORLD_SIZE", m.nrank, 1, WORLD_RANKS) || !check("RANK", m.rank, 0, m.nrank - 1) || !check("MASTER_PORT", meeting_port(), 1, UINT16_MAX))
        return false;
    m.port = (uint16_t)meeting_port();
    m.run = (uint64_t)fnv1a(PPLAN_VERSION) << 32 | (fnv1a(text_in("TORCHELASTIC_RUN_ID")) + fnv1a(text_in("TORCHELASTIC_RESTART_COUNT")));
    peer = calloc((size_t)m.nrank, sizeof *peer);
    polled = calloc((size_t)m.nrank, sizeof *polled);
    if (!peer || !polled) {
        fprintf(stderr, "error: rank %d: no memory for connections to %d ranks\n", m.rank, m.nrank);
        return false;
    }
    if (!meet_all(&m, fd))
        return false;
    for (int i = 0; i < m.nrank; i++)
        peer[i].fd = fd[i];
    *rank = me = m.rank;
    *n = nrank = m.nrank;
    return true;
}

static bool begun(Item *i, NetRequest *out)
{
    *out = i ? i->number : 0;
    if (!i)
        fprintf(stderr, "error: rank %d: no memory for a message\n", me);
    return i != NULL;
}

/* Of a message to itself the sender waits, too, until it is wanted. */
static void send_to_self(Item *i)
{
    Item *to = find(&wanted, me, i->frame.tag);
    if (!to) {
        append(&early, i);
        return;
    }
    take_out(&wanted, to);
    fill(to, i->data, i->bytes);
    i->state = NET_DONE;
}

static bool tcp_send(int to, int tag, const void *from, int64_t bytes, NetRequest *out)
{
    pthread_mutex_lock(&lock);
    Item *i = new_item(to, tag, (char *)(uintptr_t)from, bytes);
    if (i && to == me) {
        send_to_self(i);
    } else if (i) {
        i->frame.sender = i->number;
        go(to, i, bytes <= WHOLE_BYTES ? FRAME_whole : FRAME_asks);
    }
    pthread_mutex_unlock(&lock);
    return begun(i, out);
}

/* What has come for it already. */
static void take_early(Item *i)
{
    Item *come = find(&early, i->peer, i->frame.tag);
    if (!come) {
        append(&wanted, i);
        return;
    }
    take_out(&early, come);
    if (come->frame.bytes > i->bytes) {
        fprintf(stderr, "error: rank %d was sent %lld bytes by rank %d, and has room for %lld\n", me, (long long)come->frame.bytes, come->peer, (long long)i->bytes);
        i->state = NET_FAILED;
    } else if (come->peer == me) {
        fill(i, come->data, come->bytes);
        come->state = NET_DONE;
        return;
    } else if (come->frame.kind == FRAME_whole) {
        fill(i, come->kept, come->frame.bytes);
    } else {
        grant(i, come->peer, &come->frame);
    }
    free_item(come);
}

static bool tcp_recv(int from, int tag, void *to, int64_t bytes, NetRequest *out)
{
    pthread_mutex_lock(&lock);
    Item *i = new_item(from, tag, to, bytes);
    if (i)
        take_early(i);
    pthread_mutex_unlock(&lock);
    return begun(i, out);
}

static NetState tcp_test(NetRequest *q, int64_t *bytes)
{
    pthread_mutex_lock(&lock);
    Item *i = item[*q];
    if (i->state == NET_UNDER_WAY)
        move_all();
    NetState s = i->state;
    *bytes = i->bytes;
    if (s != NET_UNDER_WAY)
        free_item(i);
    pthread_mutex_unlock(&lock);
    return s;
}

static void tcp_cancel(NetRequest *q)
{
    pthread_mutex_lock(&lock);
    take_out(&wanted, item[*q]);
    free_item(item[*q]);
    pthread_mutex_unlock(&lock);
}

static bool tcp_gone(int rank)
{
    pthread_mutex_lock(&lock);
    bool gone = peer[rank].gone;
    pthread_mutex_unlock(&lock);
    return gone;
}

static void tcp_abort(int status)
{
    _exit(status);
}

static void tcp_close(void)
{
    for (int i = 0; i < nrank; i++)
        if (peer[i].fd >= 0)
            close(peer[i].fd);
    for (uint32_t i = 0; i < nitem; i++) {
        free(item[i]->kept);
        free(item[i]);
    }
    free(item);
    free(peer);
    free(polled);
}

const Net net_tcp = {
    .name = "TCP",
    .open = tcp_open,
    .send = tcp_send,
    .recv = tcp_recv,
    .test = tcp_test,
    .cancel = tcp_cancel,
    .gone = tcp_gone,
    .abort = tcp_abort,
    .close = tcp_close,
};
