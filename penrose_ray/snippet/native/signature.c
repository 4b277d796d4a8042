/* The signature of a snippet in one pass: grams, mending, shape and minima.

   Does what grams.py, mending.py, shape.py and minhash.py do, with hash tables where they sort, and gives the
   same values. Those modules say why; here are only the notes that the other means ask for. */

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS 100
#define SHAPE_FUNCTIONS 70
#define SHAPE_LAUNCHES 4096
#define PASSES 2
#define MOST_LOST 2
#define RARE 0.2
#define ONCE_AGAINST 5
#define MULTIPLIER UINT64_C(0x9E3779B97F4A7C15)
#define NOBODY UINT32_MAX

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

struct view {
    double share, divisor, floor;
};

/* Mirrored in compiled.py. */
struct scheme {
    int64_t gram, mended, views, least_grams, shape;
    const struct view *view; /* the shape's is the last */
    const uint64_t *family;  /* for each view 100 factors, then 100 offsets */
    const uint64_t *code;    /* of each distance, 0 to shape - 1 */
};

/* Memory of one call: given back as a whole. */
struct room {
    jmp_buf full;
    void **volatile last;
};

static void *take(struct room *room, int64_t count, size_t size)
{
    void **block = malloc(2 * sizeof(void *) + (size_t)count * size);
    if (!block)
        longjmp(room->full, 1);
    block[0] = room->last;
    room->last = block;
    return block + 2;
}

static void give_back(struct room *room)
{
    while (room->last) {
        void **block = room->last;
        room->last = block[0];
        free(block);
    }
}

/* A hash table of numbers 0, 1, ... whose keys the caller keeps. */
struct table {
    uint32_t *slot;
    uint64_t wrap;
    int shift;
};

static struct table table_for(struct room *room, int64_t entries)
{
    int bits = 4;
    while ((INT64_C(1) << bits) < 2 * entries)
        bits++;
    struct table table = {take(room, INT64_C(1) << bits, 4), (UINT64_C(1) << bits) - 1, 64 - bits};
    memset(table.slot, 0xFF, ((size_t)1 << bits) * 4);
    return table;
}

/* The slot of a key: that of its number, or an empty one. */
static inline uint32_t *slot_of(const struct table *table, const uint64_t *keys, uint64_t key, uint64_t mask)
{
    uint64_t place = ((key & mask) * UINT64_C(0xD6E8FEB86659FD93)) >> table->shift;
    while (table->slot[place] != NOBODY && ((keys[table->slot[place]] ^ key) & mask))
        place = (place + 1) & table->wrap;
    return &table->slot[place];
}

/* Name hashes, stream after stream; start has one more entry than there are streams. */
struct launches {
    const uint64_t *hash;
    const int64_t *start;
    int64_t streams;
};

struct tally {
    struct table table;
    uint64_t mask, *value;
    int64_t *times, *row; /* of each distinct gram; row is the first at which it stands */
    uint32_t *gram;       /* of each window */
    int64_t windows, grams;
};

static void count(struct tally *tally, uint64_t value, int64_t row)
{
    uint32_t *slot = slot_of(&tally->table, tally->value, value, tally->mask);
    if (*slot == NOBODY) {
        *slot = (uint32_t)tally->grams++;
        tally->value[*slot] = value;
        tally->times[*slot] = 0;
        tally->row[*slot] = row;
    }
    tally->times[*slot]++;
    tally->gram[tally->windows++] = *slot;
}

static uint64_t power(int64_t exponent)
{
    uint64_t result = 1;
    while (exponent--)
        result *= MULTIPLIER;
    return result;
}

static struct tally tallied(struct room *room, struct launches of, int64_t size)
{
    int64_t total = 0;
    for (int64_t stream = 0; stream < of.streams; stream++) {
        int64_t length = of.start[stream + 1] - of.start[stream];
        total += length < size ? 1 : length - size + 1;
    }
    int bits = 16;
    while (total >> bits)
        bits++;
    struct tally tally = {.table = table_for(room, total), .mask = ~((UINT64_C(1) << bits) - 1)};
    tally.value = take(room, total, 8);
    tally.times = take(room, total, 8);
    tally.row = take(room, total, 8);
    tally.gram = take(room, total, 4);
    uint64_t leaving = power(size);
    for (int64_t stream = 0; stream < of.streams; stream++) {
        int64_t first = of.start[stream], end = of.start[stream + 1];
        if (end - first < size)
            continue;
        uint64_t value = 0;
        for (int64_t row = first; row < first + size - 1; row++)
            value = value * MULTIPLIER + of.hash[row];
        for (int64_t row = first + size - 1; row < end; row++) {
            value = value * MULTIPLIER + of.hash[row];
            if (row >= first + size)
                value -= of.hash[row - size] * leaving;
            count(&tally, value, row - size + 1);
        }
    }
    for (int64_t stream = 0; stream < of.streams; stream++) {
        if (of.start[stream + 1] - of.start[stream] >= size)
            continue;
        uint64_t value = 0;
        for (int64_t row = of.start[stream]; row < of.start[stream + 1]; row++)
            value = value * MULTIPLIER + of.hash[row];
        count(&tally, value, of.start[stream]);
    }
    return tally;
}

/* Which continuation of each context is the usual one: the most frequent, of equals that of the greatest value. */
struct continuations {
    struct table table;
    uint64_t *context;
    uint32_t *usual, *of; /* gram of each context, context of each gram */
};

static struct continuations continued(struct room *room, struct launches of, const struct tally *tally, int64_t size)
{
    uint64_t inverse = MULTIPLIER; /* Newton: each step doubles the bits that are right, three at first */
    for (int step = 0; step < 5; step++)
        inverse *= 2 - MULTIPLIER * inverse;
    struct continuations known = {table_for(room, tally->grams), take(room, tally->grams, 8),
                                  take(room, tally->grams, 4), take(room, tally->grams, 4)};
    uint32_t contexts = 0;
    for (uint32_t gram = 0; gram < tally->grams; gram++) {
        uint64_t context = (tally->value[gram] - of.hash[tally->row[gram] + size - 1]) * inverse;
        uint32_t *slot = slot_of(&known.table, known.context, context, UINT64_MAX);
        if (*slot == NOBODY) {
            *slot = contexts++;
            known.context[*slot] = context;
            known.usual[*slot] = gram;
        }
        uint32_t best = known.usual[*slot];
        if (tally->times[gram] > tally->times[best] ||
            (tally->times[gram] == tally->times[best] && tally->value[gram] > tally->value[best]))
            known.usual[*slot] = gram;
        known.of[gram] = *slot;
    }
    return known;
}

/* How many launches are put back where a gram stands, 0 if nothing was lost; and which. */
static int explained(struct launches of, const struct tally *tally, const struct continuations *known, int64_t size,
                     uint64_t oldest, uint32_t gram, uint64_t put_back[MOST_LOST])
{
    uint32_t usual = known->usual[known->of[gram]];
    int64_t most = tally->times[usual];
    if (usual == gram || most < ONCE_AGAINST || (double)tally->times[gram] > RARE * (double)most)
        return 0;
    uint64_t here = of.hash[tally->row[gram] + size - 1];
    for (int step = 0;;) {
        const uint64_t *names = of.hash + tally->row[usual];
        put_back[step++] = names[size - 1];
        uint64_t following = tally->value[usual] - names[0] * oldest;
        uint64_t target = following * MULTIPLIER + here;
        uint32_t seen = *slot_of(&tally->table, tally->value, target, tally->mask);
        if (seen != NOBODY && tally->value[seen] == target && tally->times[seen] >= tally->times[gram])
            return step;
        uint32_t context = *slot_of(&known->table, known->context, following, UINT64_MAX);
        if (step == MOST_LOST || context == NOBODY)
            return 0;
        usual = known->usual[context];
    }
}

/* Put lost launches back; false where none were lost. */
static int mend(struct room *room, struct launches *of, const struct tally *tally, int64_t size)
{
    struct continuations known = continued(room, *of, tally, size);
    uint64_t(*put_back)[MOST_LOST] = take(room, tally->grams, sizeof *put_back), oldest = power(size - 1);
    uint8_t *steps = take(room, tally->grams, 1);
    int64_t lost = 0, window = 0, end = 0;
    for (uint32_t gram = 0; gram < tally->grams; gram++) {
        steps[gram] = (uint8_t)explained(*of, tally, &known, size, oldest, gram, put_back[gram]);
        lost += steps[gram] * tally->times[gram];
    }
    if (lost == 0)
        return 0;
    uint64_t *hash = take(room, of->start[of->streams] + lost, 8);
    int64_t *start = take(room, of->streams + 1, 8);
    for (int64_t stream = 0; stream < of->streams; stream++) {
        start[stream] = end;
        for (int64_t row = of->start[stream]; row < of->start[stream + 1]; row++) {
            if (row - of->start[stream] >= size - 1) {
                uint32_t gram = tally->gram[window++];
                for (int step = 0; step < steps[gram]; step++)
                    hash[end++] = put_back[gram][step];
            }
            hash[end++] = of->hash[row];
        }
    }
    start[of->streams] = end;
    *of = (struct launches){hash, start, of->streams};
    return 1;
}

FOR_EACH_CPU
static void lower(uint64_t *restrict least, const uint64_t *restrict values, int64_t count,
                  const uint64_t *restrict factor, const uint64_t *restrict offset, int functions)
{
    for (int64_t place = 0; place < count; place++) {
        uint64_t mixed = values[place];
        mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
        mixed ^= mixed >> 31;
        for (int each = 0; each < functions; each++) {
            uint64_t hashed = mixed * factor[each] + offset[each];
            least[each] = hashed < least[each] ? hashed : least[each];
        }
    }
}

static void write_row(uint32_t *row, const uint64_t *least, uint32_t whole)
{
    for (int each = 0; each < FUNCTIONS; each++)
        row[each] = ((uint32_t)(least[each] >> 32) & ~UINT32_C(1)) | whole;
}

/* Values of grams seen at least `from` times and less than `below` times. */
static int64_t between(const struct tally *tally, double from, double below, uint64_t *values)
{
    int64_t kept = 0;
    for (int64_t gram = 0; gram < tally->grams; gram++) {
        values[kept] = tally->value[gram];
        kept += (double)tally->times[gram] >= from && (double)tally->times[gram] < below;
    }
    return kept;
}

/* How often a gram occurs at least that belongs to a view; `grams` has how many occur so often. */
static double least_count(const struct view *view, const int64_t *grams, int64_t windows, int64_t least_grams)
{
    double wanted = view->floor;
    if (view->share != 0) {
        int64_t typical = 0, mass = 0;
        double share = view->share * (double)windows;
        while ((double)mass < share || mass == 0) {
            typical++;
            mass += typical * grams[typical];
        }
        double relative = (double)typical / view->divisor;
        wanted = relative > wanted ? relative : wanted;
    }
    int64_t kept = 0;
    for (int64_t times = windows; times > 0 && (double)times >= wanted; times--)
        kept += grams[times];
    return kept >= (least_grams > 1 ? least_grams : 1) ? wanted : 1.0;
}

static int64_t *grams_by_times(struct room *room, const struct tally *tally)
{
    int64_t *grams = take(room, tally->windows + 1, 8);
    memset(grams, 0, ((size_t)tally->windows + 1) * 8);
    for (int64_t gram = 0; gram < tally->grams; gram++)
        grams[tally->times[gram]]++;
    return grams;
}

static void views(struct room *room, const struct tally *plain, const struct tally *found, const struct scheme *of,
                  uint32_t *out)
{
    int64_t *grams = grams_by_times(room, found);
    double *least = take(room, of->views, sizeof *least), above = 1.0 / 0.0;
    uint64_t *values = take(room, found->grams, 8), nested[FUNCTIONS];
    memset(nested, 0xFF, sizeof nested);
    for (int64_t view = 0; view < of->views; view++)
        least[view] = least_count(&of->view[view], grams, found->windows, of->least_grams);
    for (;;) { /* views are nested: the strictest first */
        double next = 1.0;
        for (int64_t view = 0; view < of->views; view++)
            if (least[view] < above && least[view] > next)
                next = least[view];
        if (next <= 1.0)
            break;
        int64_t kept = between(found, next, above, values);
        lower(nested, values, kept, of->family, of->family + FUNCTIONS, FUNCTIONS);
        for (int64_t view = 0; view < of->views; view++)
            if (least[view] == next)
                write_row(out + view * FUNCTIONS, nested, 0);
        above = next;
    }
    for (int64_t view = 0; view < of->views; view++) {
        if (least[view] > 1.0)
            continue;
        const uint64_t *family = of->family + 2 * FUNCTIONS * view;
        uint64_t own[FUNCTIONS];
        memset(own, 0xFF, sizeof own);
        if (view == 0 && plain == found) {
            int64_t kept = between(found, 1.0, above, values);
            lower(nested, values, kept, family, family + FUNCTIONS, FUNCTIONS);
            memcpy(own, nested, sizeof own);
        } else {
            const struct tally *all = view ? found : plain;
            lower(own, all->value, all->grams, family, family + FUNCTIONS, FUNCTIONS);
        }
        write_row(out + view * FUNCTIONS, own, view != 0);
    }
}

/* Distances to the last launch of the same kernel, of the first launches; and the names in use. */
static void shape(struct room *room, struct launches from, const struct scheme *of, uint32_t *out)
{
    int64_t total = from.start[from.streams], most = SHAPE_LAUNCHES + from.streams, end = 0, used = 0;
    struct table table = table_for(room, most);
    uint64_t *codes = take(room, most, 8), *names = take(room, most, 8), least[FUNCTIONS];
    int64_t *start = take(room, from.streams + 1, 8), *last = take(room, most, 8);
    for (int64_t stream = 0; stream < from.streams; stream++) {
        int64_t kept = from.start[stream + 1] - from.start[stream];
        if (total > SHAPE_LAUNCHES)
            kept = (kept * SHAPE_LAUNCHES + total - 1) / total;
        const uint64_t *hash = from.hash + from.start[stream];
        start[stream] = end;
        for (int64_t row = 0; row < kept; row++, end++) {
            uint32_t *slot = slot_of(&table, names, hash[row], UINT64_C(0xFFFF) << 48);
            int64_t distance = 0;
            if (*slot == NOBODY) {
                *slot = (uint32_t)used++;
                names[*slot] = hash[row];
            } else if (last[*slot] >= start[stream] && end - last[*slot] < of->shape) {
                distance = end - last[*slot];
            }
            last[*slot] = end;
            codes[end] = of->code[distance];
        }
    }
    start[from.streams] = end;
    struct tally found = tallied(room, (struct launches){codes, start, from.streams}, of->shape);
    double from_times = least_count(&of->view[of->views], grams_by_times(room, &found), found.windows, of->least_grams);
    uint64_t *values = take(room, found.grams, 8);
    int64_t kept = between(&found, from_times, 1.0 / 0.0, values);
    memset(least, 0xFF, sizeof least);
    lower(least, values, kept, of->family, of->family + FUNCTIONS, SHAPE_FUNCTIONS);
    lower(least + SHAPE_FUNCTIONS, names, used, of->family + SHAPE_FUNCTIONS,
          of->family + FUNCTIONS + SHAPE_FUNCTIONS, FUNCTIONS - SHAPE_FUNCTIONS);
    write_row(out, least, 0);
}

/* Write 100 values for each view and the shape; returns 0, or 1 when memory is short. */
int penrose_signature(const uint64_t *hash, const int64_t *start, int64_t streams, const struct scheme *of,
                      uint32_t *out)
{
    struct room room = {.last = NULL};
    if (setjmp(room.full)) {
        give_back(&room);
        return 1;
    }
    struct launches launches = {hash, start, streams};
    int64_t shortest = INT64_MAX;
    for (int64_t stream = 0; stream < streams; stream++)
        if (start[stream + 1] - start[stream] < shortest)
            shortest = start[stream + 1] - start[stream];
    struct tally plain = tallied(&room, launches, of->gram), mended;
    const struct tally *found = &plain;
    for (int pass = 0; of->mended && shortest > of->gram && pass < PASSES; pass++) {
        if (!mend(&room, &launches, found, of->gram))
            break;
        mended = tallied(&room, launches, of->gram);
        found = &mended;
    }
    views(&room, &plain, found, of, out);
    if (of->shape)
        shape(&room, launches, of, out + FUNCTIONS * of->views);
    give_back(&room);
    return 0;
}
