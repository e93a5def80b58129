/* table.h */
#include "cprofiling/trace/table.h"

#include "tests/core/tables.h"

#include <string.h>

enum { NO_PARENT = -1 };

static uint64_t fold(uint64_t hash, uint64_t number)
{
    hash = (hash ^ number) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* A thread of process 7 of which the hash that fold() makes, from 1 on, ends in the same 32 bits as of the others. */
static int64_t crafted_thread(uint64_t i)
{
    static const uint64_t inverse = UINT64_C(0xf1de83e19937733d); /* of 0x9e37...7c15 */
    uint64_t thread = (i << 32 | (i ^ 12345)) * inverse;
    return (int64_t)((thread ^ thread >> 32) * inverse ^ fold(fold(1, 7), 0));
}

/* Nobody can make threads that are slow to find: tables hash as no other does. */
TEST(crafted_tracks)
{
    enum { THREADS = 1000 };
    cprof_table *other = cprof_table_create();
    CHECK(table->seed != other->seed);
    for (uint32_t i = 0; i < THREADS; i++) {
        uint32_t track;
        CHECK(cprof_table_track(table, 7, 0, crafted_thread(i + 1), 0, &track) == CPROF_OK && track == i);
        CHECK(cprof_table_track(other, 7, 0, crafted_thread(i + 1), 0, &track) == CPROF_OK && track == i);
    }
    const cprof_table_slots *slots = &table->slots;
    CHECK(check_longest_run(slots->slots, slots->count) < THREADS / 4);
    CHECK(memcmp(slots->slots, other->slots.slots, slots->count * sizeof *slots->slots) != 0);
    cprof_table_destroy(other);
}

/* A row of thread 1 that is named by one letter, or by none. */
typedef struct {
    cprof_ns start;
    cprof_ns end;
    char letter;
    cprof_kind kind;
    uint64_t span;
    uint64_t parent_span;
    uint8_t flags;
    uint32_t track;
} brief;

static void add_brief(brief wanted)
{
    char name[2] = {wanted.letter, '\0'};
    cprof_row row = cprof_row_none;
    (void)track_of(1, 0);
    (void)track_of(1, 1);
    (void)track_of(1, 2);
    row.start_ns = wanted.start;
    row.end_ns = wanted.end;
    row.name = text_of(name);
    row.kind = (uint8_t)wanted.kind;
    row.span = wanted.span;
    row.parent_span = wanted.parent_span;
    row.flags = wanted.flags;
    row.track = wanted.track;
    add(&row);
}

/* A row of another thread. */
static cprof_row row_between(cprof_ns start_ns, cprof_ns end_ns)
{
    cprof_row row = cprof_row_none;
    row.start_ns = start_ns;
    row.end_ns = end_ns;
    row.track = track_of(1, 1);
    return row;
}

/* Begins a new table. */
static void fill(const brief *rows, size_t count)
{
    tear_down();
    set_up();
    for (size_t i = 0; i < count; i++) {
        add_brief(rows[i]);
    }
    finish();
}

#define HOST .kind = CPROF_KIND_HOST
#define STEP .kind = CPROF_KIND_STEP
#define DEVICE .kind = CPROF_KIND_DEVICE
#define INSTANT .kind = CPROF_KIND_INSTANT
#define COUNTER .kind = CPROF_KIND_COUNTER
#define SUSPENDABLE .flags = CPROF_ROW_SUSPENDABLE

/* Braces for a row, the rest of it by the names of the fields. */
#define ROW(begin, finish, name, ...) {.start = (begin), .end = (finish), .letter = (name), __VA_ARGS__}

#define FILL(...) fill((const brief[]){__VA_ARGS__}, COUNT_OF(((const brief[]){__VA_ARGS__})))

static char letter_of(size_t row)
{
    cprof_name name = cprof_table_string(table, table->name[row]);
    return name.length > 0 ? name.bytes[0] : '-';
}

static size_t row_of(char letter)
{
    size_t row = 0;
    while (row < table->count && letter_of(row) != letter) {
        row++;
    }
    CHECK(row < table->count);
    return row;
}

/* "ABC": the order of the rows; "-AB": the parents of these rows. */
static void check_order(const char *order)
{
    CHECK_EQUAL(table->count, strlen(order));
    for (size_t i = 0; i < table->count; i++) {
        CHECK_EQUAL(letter_of(i), order[i]);
    }
}

static char parent_letter(char letter)
{
    int32_t parent = table->parent[row_of(letter)];
    return parent >= 0 ? letter_of((size_t)parent) : '-';
}

static unsigned lane_of(char letter)
{
    return table->lane != NULL ? table->lane[row_of(letter)] : 0;
}

/* `children` and `parents`, letter by letter. */
static void check_parents(const char *children, const char *parents)
{
    for (size_t i = 0; children[i] != '\0'; i++) {
        CHECK_EQUAL(parent_letter(children[i]), parents[i]);
    }
}

/* The digit below each letter is its lane. */
static void check_lanes(const char *letters, const char *lanes)
{
    for (size_t i = 0; letters[i] != '\0'; i++) {
        CHECK_EQUAL(lane_of(letters[i]), (unsigned)(lanes[i] - '0'));
    }
}

TEST(columns_say_what_they_are)
{
    static const struct {
        const char *name;
        size_t size;
        int64_t none;
        cprof_column_number number;
        char format;
    } expected[] = {
        {"start_ns", 8, 0, CPROF_COLUMN_start_ns, 'q'}, {"span", 8, 0, CPROF_COLUMN_span, 'Q'},
        {"parent", 4, -1, CPROF_COLUMN_parent, 'i'},    {"track", 4, 0, CPROF_COLUMN_track, 'I'},
        {"lane", 2, 0, CPROF_COLUMN_lane, 'H'},         {"kind", 1, 0, CPROF_COLUMN_kind, 'B'},
        {"device", 4, -1, CPROF_COLUMN_device, 'i'},    {"bytes", 8, INT64_MIN, CPROF_COLUMN_bytes, 'q'},
        {"stream", 8, -1, CPROF_COLUMN_stream, 'q'},    {"args_length", 4, 0, CPROF_COLUMN_args_length, 'I'},
    };
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        cprof_column column = cprof_table_column(table, expected[i].number);
        CHECK(strcmp(column.name, expected[i].name) == 0);
        CHECK_EQUAL(column.format, expected[i].format);
        CHECK_EQUAL(column.item_size, expected[i].size);
        CHECK_EQUAL(column.none, expected[i].none);
        CHECK(column.items == NULL);
    }
    cprof_table_destroy(NULL);
}

/* A row in which column `number` alone has another value than "none". */
static cprof_row row_with(cprof_column_number number)
{
    cprof_row row = cprof_row_none;
    switch (number) {
#define SET(column, type, none) \
    case CPROF_COLUMN_##column: \
        row.column = 7;         \
        break;
        CPROF_TABLE_COLUMNS(SET)
#undef SET
    case CPROF_COLUMN_COUNT:
        break;
    }
    return row;
}

static int64_t item_of(cprof_column column, size_t row)
{
    uint64_t item = 0;
    int32_t small;
    if (column.format == 'i') {
        memcpy(&small, (const char *)column.items + row * sizeof small, sizeof small);
        return small;
    }
    for (size_t i = 0; i < column.item_size; i++) {
        size_t byte = row * column.item_size + i;
        item |= (uint64_t)((const uint8_t *)column.items)[byte] << 8 * i;
    }
    return (int64_t)item;
}

static bool is_always_there(cprof_column_number number)
{
    return number == CPROF_COLUMN_start_ns || number == CPROF_COLUMN_end_ns || number == CPROF_COLUMN_track ||
           number == CPROF_COLUMN_name || number == CPROF_COLUMN_cat || number == CPROF_COLUMN_kind ||
           number == CPROF_COLUMN_parent;
}

/* Each column comes into being with the first row that has something there. */
TEST(columns_come_when_they_are_needed)
{
    enum { BEFORE = 300, AFTER = 300 };
    for (int number = 0; number < CPROF_COLUMN_COUNT; number++) {
        cprof_column_number wanted = (cprof_column_number)number;
        cprof_row other = row_with(wanted);
        set_up();
        for (int i = 0; i < BEFORE; i++) {
            add(&cprof_row_none);
        }
        CHECK((cprof_table_column(table, wanted).items != NULL) == is_always_there(wanted));
        add(&other);
        for (int i = 0; i < AFTER; i++) {
            add(&cprof_row_none);
        }
        CHECK_EQUAL(table->count, BEFORE + 1 + AFTER);
        cprof_column column = cprof_table_column(table, wanted);
        for (size_t i = 0; i < table->count; i++) {
            CHECK_EQUAL(item_of(column, i), i == BEFORE ? 7 : column.none);
        }
        for (int i = 0; i < CPROF_COLUMN_COUNT; i++) {
            bool there = cprof_table_column(table, (cprof_column_number)i).items != NULL;
            CHECK(there == (i == number || is_always_there((cprof_column_number)i)));
        }
    }
}

TEST(too_many_rows)
{
    add(&cprof_row_none);
    size_t count = table->count, capacity = table->capacity;
    table->count = table->capacity = CPROF_TABLE_MAX_ROWS;
    CHECK(cprof_table_add(table, &cprof_row_none) == CPROF_OUT_OF_RANGE);
    CHECK_EQUAL(table->count, CPROF_TABLE_MAX_ROWS);
    table->count = count;
    table->capacity = capacity;
    add(&cprof_row_none);
}

TEST(texts)
{
    enum { LONG = 1000000 };
    CHECK_EQUAL(text_of(""), 0);
    CHECK(is_text(cprof_table_string(table, 0), ""));
    CHECK_EQUAL(text_of("forward"), 1);
    CHECK_EQUAL(text_of("Forward"), 2);
    CHECK_EQUAL(text_of("forward"), 1);
    CHECK(is_text(cprof_table_string(table, 1), "forward"));
    CHECK(is_text(cprof_table_string(table, 2), "Forward"));
    char *name = malloc(LONG);
    CHECK(name != NULL);
    memset(name, '\0', LONG); /* any bytes */
    cprof_text text;
    CHECK(cprof_table_text(table, (cprof_name){name, LONG}, &text) == CPROF_OK);
    CHECK_EQUAL(text, 3);
    CHECK_EQUAL(cprof_table_string(table, 3).length, LONG);
    CHECK(cprof_table_text(table, (cprof_name){name, LONG - 1}, &text) == CPROF_OK);
    CHECK_EQUAL(text, 4);
    free(name);
}

/* Numbers of texts and tracks have 32 bits: a table that has used them up has no room for more. */
TEST(numbers_run_out)
{
    cprof_text text;
    uint32_t track;
    table->texts.count = table->track_count = UINT32_MAX - 1;
    CHECK(cprof_table_text(table, cprof_name_of("one more"), &text) == CPROF_NO_MEMORY);
    table->texts.count = table->track_count = 0;
    (void)track_of(1, 1);
    table->track_count = UINT32_MAX - 1;
    CHECK(cprof_table_track(table, 5, 0, 5, 0, &track) == CPROF_NO_MEMORY);
    table->track_count = 1;
}

TEST(tracks)
{
    enum { THREADS = 1000 };
    cprof_text spark = text_of("Spark");
    uint32_t track;
    CHECK(!cprof_table_find_track(table, 0, 0, 0, 0, &track) && !cprof_table_find_process(table, 0, 0, &track));
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(cprof_table_track(table, i / 10, 0, i, 0, &track) == CPROF_OK);
        CHECK_EQUAL(track, i);
        CHECK_EQUAL(table->tracks[i].process, i / 10 * 10);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(cprof_table_track(table, i / 10, 0, i, 0, &track) == CPROF_OK);
        CHECK_EQUAL(track, i);
    }
    CHECK(cprof_table_track(table, 5, spark, 3, 0, &track) == CPROF_OK);
    CHECK_EQUAL(track, THREADS);
    CHECK(cprof_table_track(table, 6, spark, 3, 0, &track) == CPROF_OK);
    CHECK_EQUAL(track, THREADS); /* the text counts, not the number */
    CHECK(cprof_table_track(table, 6, spark, 4, spark, &track) == CPROF_OK);
    CHECK_EQUAL(track, THREADS + 1);
    CHECK(cprof_table_track(table, 6, spark, 5, spark, &track) == CPROF_OK);
    CHECK_EQUAL(track, THREADS + 1);
    CHECK(cprof_table_find_track(table, 5, spark, 3, 0, &track) && track == THREADS);
    CHECK(cprof_table_find_track(table, 99, 0, 999, 0, &track) && track == 999);
    CHECK(!cprof_table_find_track(table, 99, 0, 998, spark, &track));
    CHECK(cprof_table_find_process(table, 99, 0, &track) && track == 990);
    CHECK(cprof_table_find_process(table, 99, spark, &track) && track == THREADS);
    CHECK(!cprof_table_find_process(table, 100, 0, &track));
    const cprof_track *last = &table->tracks[THREADS + 1];
    CHECK(last->pid_text == spark && last->tid_text == spark && last->process == THREADS);
    CHECK(last->thread_name == 0 && last->thread_sort == CPROF_TABLE_UNKNOWN && last->process_sort == CPROF_TABLE_UNKNOWN);
    CHECK_EQUAL(table->track_count, THREADS + 2);
}

/* What is said of a process at one track of it holds for all. */
TEST(processes_are_shared)
{
    uint32_t other;
    uint32_t first = track_of(1, 1);
    uint32_t second = track_of(1, 2);
    CHECK(cprof_table_track(table, 9, 0, 1, 0, &other) == CPROF_OK);
    table->tracks[second].process_name = text_of("trainer");
    table->tracks[second].process_sort = 0;
    table->tracks[first].process_labels = text_of("GPU 0");
    table->tracks[first].thread_name = text_of("main");
    finish();
    for (uint32_t i = first; i <= second; i++) {
        CHECK(is_text(cprof_table_string(table, table->tracks[i].process_name), "trainer"));
        CHECK(is_text(cprof_table_string(table, table->tracks[i].process_labels), "GPU 0"));
        CHECK_EQUAL(table->tracks[i].process_sort, 0);
    }
    CHECK_EQUAL(table->tracks[second].thread_name, 0);
    CHECK_EQUAL(table->tracks[other].process_name, 0);
    CHECK_EQUAL(table->tracks[other].process_sort, CPROF_TABLE_UNKNOWN);
}

TEST(kept_bytes)
{
    uint64_t at;
    char large[5000];
    memset(large, 'x', sizeof large);
    CHECK(cprof_table_keep(table, cprof_name_of(""), &at) == CPROF_OK);
    CHECK_EQUAL(at, 0);
    CHECK(cprof_table_keep(table, cprof_name_of("{\"a\":1}"), &at) == CPROF_OK);
    CHECK_EQUAL(at, 0);
    CHECK(cprof_table_keep(table, (cprof_name){large, sizeof large}, &at) == CPROF_OK);
    CHECK_EQUAL(at, 7);
    CHECK(cprof_table_keep(table, cprof_name_of("end"), &at) == CPROF_OK);
    CHECK_EQUAL(at, 7 + sizeof large);
    CHECK_EQUAL(table->kept_count, 7 + sizeof large + 3);
    CHECK(memcmp(table->kept, "{\"a\":1}xx", 9) == 0 && memcmp(table->kept + at - 1, "xend", 4) == 0);
}

static void check_fact(const char *key, const char *expected)
{
    cprof_name value;
    CHECK(cprof_table_fact(table, cprof_name_of(key), &value));
    CHECK(is_text(value, expected));
}

TEST(facts)
{
    enum { MANY = 1000 };
    cprof_name value;
    char key[16];
    CHECK(!cprof_table_fact(table, cprof_name_of("schemaVersion"), &value));
    CHECK(!cprof_table_fact(table, cprof_name_of(""), &value));
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(key, sizeof key, "%d", i);
        CHECK(cprof_table_set_fact(table, cprof_name_of(key), cprof_name_of(key)) == CPROF_OK);
    }
    (void)text_of("a text");
    CHECK(!cprof_table_fact(table, cprof_name_of("a text"), &value));
    CHECK(!cprof_table_fact(table, cprof_name_of("no text"), &value));
    CHECK(!cprof_table_fact(table, cprof_name_of(""), &value));
    CHECK(cprof_table_set_fact(table, cprof_name_of(""), cprof_name_of("null")) == CPROF_OK);
    CHECK(cprof_table_set_fact(table, cprof_name_of("17"), cprof_name_of("[1, 7]")) == CPROF_OK);
    CHECK_EQUAL(table->fact_count, MANY + 1);
    check_fact("", "null");
    check_fact("17", "[1, 7]");
    check_fact("0", "0");
    check_fact("999", "999");
}

TEST(flows)
{
    enum { MANY = 100 };
    for (uint64_t i = 0; i < MANY; i++) {
        cprof_flow flow = {.at_ns = (cprof_ns)i, .id = i * i, .phase = 's'};
        CHECK(cprof_table_add_flow(table, &flow) == CPROF_OK);
    }
    CHECK_EQUAL(table->flow_count, MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        CHECK(table->flows[i].id == i * i && table->flows[i].at_ns == (cprof_ns)i && table->flows[i].phase == 's');
    }
}

/* The last owner frees it. */
TEST(shared_tables)
{
    add(&cprof_row_none);
    CHECK(cprof_table_share(table) == table);
    CHECK(cprof_table_share(table) == table);
    uint64_t live = fake_alloc_live();
    cprof_table_destroy(table);
    cprof_table_destroy(table);
    CHECK_EQUAL(fake_alloc_live(), live);
    CHECK_EQUAL(table->count, 1);
    tear_down();
    CHECK(fake_alloc_live() < live);
}

static bool belongs_before(size_t a, size_t b)
{
    if (table->start_ns[a] != table->start_ns[b]) {
        return table->start_ns[a] < table->start_ns[b];
    }
    if (table->end_ns[a] != table->end_ns[b]) {
        return table->end_ns[a] > table->end_ns[b];
    }
    return table->correlation[a] < table->correlation[b];
}

/* Rows whose number in the order of adding is kept in columns of each width. */
static void check_random_order(size_t count, uint64_t range, uint64_t *random)
{
    uint64_t sum = 0;
    set_up();
    for (size_t i = 0; i < count; i++) {
        cprof_ns start_ns = (cprof_ns)(check_random(random) % range) + (cprof_ns)(i / 2);
        cprof_row row = row_between(start_ns, start_ns + (cprof_ns)(check_random(random) % 3));
        row.correlation = (int64_t)i;
        row.device = (int32_t)i;
        row.outcome = (uint8_t)(i % 251);
        add(&row);
        sum += i;
    }
    finish();
    CHECK_EQUAL(table->count, count);
    for (size_t i = 0; i < count; i++) {
        CHECK(i == 0 || belongs_before(i - 1, i));
        CHECK_EQUAL(table->device[i], table->correlation[i]);
        CHECK_EQUAL(table->outcome != NULL ? table->outcome[i] : 0, table->correlation[i] % 251);
        sum -= (uint64_t)table->correlation[i];
    }
    CHECK_EQUAL(sum, 0);
}

TEST(rows_are_sorted)
{
    static const size_t counts[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 100, 1000, 5000};
    uint64_t random = 1;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        check_random_order(counts[i], 1, &random);       /* in order, nearly */
        check_random_order(counts[i], 20, &random);      /* out of order by a few */
        check_random_order(counts[i], 1000000, &random); /* out of all order */
    }
}

TEST(an_empty_table_can_be_finished)
{
    finish();
    finish();
    CHECK_EQUAL(table->count, 0);
    CHECK(table->parent == NULL && table->lane == NULL);
}

/* Of equal rows the one added first, but parents before their children. */
TEST(rows_with_one_interval)
{
    FILL(ROW(5, 9, 'A'), ROW(5, 5, 'B'), ROW(5, 9, 'C'), ROW(5, 10, 'D'), ROW(4, 4, 'E'), ROW(5, 9, 'F'));
    check_order("EDACFB");

    FILL(ROW(5, 5, 'A', .span = 1, .parent_span = 2), ROW(5, 5, 'X'), ROW(5, 5, 'B', .span = 2, .parent_span = 3),
         ROW(5, 5, 'C', .span = 3, .parent_span = 4), ROW(1, 9, 'D', .span = 4), ROW(5, 5, 'E', .span = 5, .parent_span = 2),
         ROW(5, 5, 'Y', .track = 1));
    check_order("DCBAXEY");
    check_parents("ABCDEY", "BCD-B-");
}

TEST(parents_by_ids)
{
    FILL(ROW(20, 30, 'B', .span = 2, .parent_span = 1), ROW(21, 22, 'C', .span = 3, .parent_span = 2, .track = 1),
         ROW(10, 40, 'A', .span = 1), ROW(23, 24, 'D', .parent_span = 2), ROW(25, 26, 'E', .span = 5, .parent_span = 77),
         ROW(50, 60, 'F', .span = 6, .parent_span = 1), ROW(27, 28, 'G', .span = 7));
    check_order("ABCDEGF");
    check_parents("ABCDEFG", "-AB"
                             "B-A-");
    CHECK_EQUAL(table->parent_span[row_of('E')], 77);

    /* no row has an id, though some name a parent */
    FILL(ROW(1, 9, 'A'), ROW(2, 3, 'B', .parent_span = 5));
    CHECK(table->span == NULL);
    check_parents("AB", "--");
}

/* What only damaged data has: an id twice, circles. */
TEST(parents_of_damaged_data)
{
    FILL(ROW(1, 9, 'A', .span = 1), ROW(2, 9, 'B', .span = 1), ROW(3, 4, 'C', .span = 2, .parent_span = 1));
    check_parents("ABC", "--A");

    FILL(ROW(1, 9, 'A', .span = 1, .parent_span = 1), ROW(2, 9, 'B', .span = 2, .parent_span = 4),
         ROW(3, 9, 'C', .span = 3, .parent_span = 2), ROW(4, 9, 'D', .span = 4, .parent_span = 3),
         ROW(5, 9, 'E', .span = 5, .parent_span = 3), ROW(6, 6, 'F', .span = 6, .parent_span = 7),
         ROW(6, 6, 'G', .span = 7, .parent_span = 6));
    for (size_t i = 0; i < table->count; i++) {
        size_t steps = 0;
        for (int32_t at = (int32_t)i; at >= 0; at = table->parent[at]) {
            CHECK(steps++ < table->count);
        }
    }
    check_parents("AE", "-C");
}

/* Ids as they are made: by chance. */
TEST(many_ids)
{
    enum { MANY = 20000 };
    uint64_t random = 3;
    uint64_t *ids = calloc(MANY, sizeof *ids);
    CHECK(ids != NULL);
    for (size_t i = 0; i < MANY; i++) {
        ids[i] = check_random(&random);
    }
    for (size_t i = MANY; i-- > 0;) {
        cprof_row row = row_between((cprof_ns)i, 2 * MANY - (cprof_ns)i);
        row.span = ids[i];
        row.parent_span = i > 0 ? ids[i / 2] : 0;
        add(&row);
    }
    finish();
    CHECK_EQUAL(table->parent[0], NO_PARENT);
    for (size_t i = 1; i < MANY; i++) {
        CHECK_EQUAL(table->span[i], ids[i]);
        CHECK_EQUAL(table->parent[i], i / 2);
    }
    free(ids);
}

TEST(parents_by_time)
{
    FILL(ROW(0, 100000, 'A', HOST), ROW(10000, 50000, 'B', HOST), ROW(20000, 30000, 'C', HOST), ROW(20000, 30000, 'D', HOST),
         ROW(60000, 70000, 'E', HOST), ROW(25000, 26000, 'F', .track = 1), ROW(100000, 110000, 'G', HOST),
         ROW(110000, 110000, 'H', HOST), ROW(0, 0, 'I', HOST));
    check_parents("ABCDEFGHI", "-ABCA--GA");
    CHECK(table->lane == NULL);
}

/* Only what lasts takes part. */
TEST(kinds_without_parents_by_time)
{
    FILL(ROW(0, 100, 'S', STEP), ROW(10, 50, 'A', HOST), ROW(20, 20, 'I', INSTANT), ROW(21, 40, 'T', STEP),
         ROW(30, 30, 'C', COUNTER), ROW(30, 31, 'B', HOST), ROW(30, 31, 'D', DEVICE),
         ROW(22, 35, 'E', .kind = CPROF_KIND_DEVICE, .track = 1), ROW(23, 34, 'F', .kind = CPROF_KIND_DEVICE, .track = 1));
    check_parents("SAITCBDEF", "-----AB-E");
}

/* Rows of others lie within ours; ours go by their ids. */
TEST(parents_of_both_sorts)
{
    FILL(ROW(0, 100, 'A', .span = 1), ROW(10, 90, 'B', .span = 2, .parent_span = 1), ROW(20, 30, 'c', HOST),
         ROW(22, 28, 'd', HOST), ROW(23, 24, 'E', .span = 3), ROW(23, 24, 'f', HOST), ROW(95, 96, 'g', HOST),
         ROW(200, 210, 'h', HOST), ROW(201, 202, 'I', .span = 4, .parent_span = 1));
    check_parents("ABcdEfghI", "-ABc-EA-A");
}

/* Children stick out by what is rounded away, up to a microsecond; what only touches is no child. */
TEST(rounded_times)
{
    FILL(ROW(10000, 20000, 'A', HOST), ROW(15000, 21000, 'B', HOST), ROW(16000, 21000, 'C', HOST), ROW(20000, 21000, 'D', HOST),
         ROW(20500, 22001, 'E', HOST), ROW(30000, 40000, 'F', HOST), ROW(35000, 41001, 'G', HOST), ROW(50000, 60000, 'H', HOST),
         ROW(60000, 60001, 'J', HOST), ROW(60001, 60001, 'K', HOST));
    check_parents("ABCDEFGHJK", "-AB------J");
    CHECK_EQUAL(lane_of('G'), 1); /* that is no rounding */
    check_lanes("ABCDEFHJK", "000000000");
}

/* Times at the ends of what 64 bits hold are only times. */
TEST(extreme_times)
{
    FILL(ROW(INT64_MIN, INT64_MAX, 'A', HOST), ROW(INT64_MIN, INT64_MIN, 'B', HOST), ROW(INT64_MAX, INT64_MAX, 'C', HOST),
         ROW(INT64_MIN, INT64_MIN + 1, 'D', HOST), ROW(INT64_MAX - 1, INT64_MAX, 'E', HOST), ROW(-5, 5, 'F', .span = 1),
         ROW(-6, INT64_MAX, 'G', .span = 2));
    check_parents("ABCDEFG", "-DEAG--");
}

/* Adds nested rows at random: each opens a row in the innermost one that is open, or ends that one. The number of a row is its
 * device, that of its parent the correlation. */
static void add_nested(uint64_t *random)
{
    enum { ROWS = 2000, DEEPEST = 50 };
    cprof_row open[DEEPEST];
    size_t depth = 0;
    int32_t made = 0;
    for (cprof_ns now = 0; table->count < ROWS; now += (cprof_ns)(check_random(random) % 3) * 2000) {
        if (depth < DEEPEST && check_random(random) % 2 == 0) {
            cprof_row row = row_between(now, now);
            row.kind = CPROF_KIND_HOST;
            row.device = made++;
            row.correlation = depth > 0 ? open[depth - 1].device : -1;
            open[depth++] = row;
            now += 2000;
        } else if (depth > 0) {
            open[--depth].end_ns = now;
            now += 2000;
            add(&open[depth]);
        }
    }
}

/* The parent of a row that was open when the adding ended is not there. */
static int64_t expected_parent(size_t row)
{
    int64_t parent = table->correlation[row];
    for (size_t i = 0; i < table->count; i++) {
        if (table->device[i] == parent) {
            return parent;
        }
    }
    return -1;
}

TEST(random_nesting)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t random = seed;
        set_up();
        add_nested(&random);
        finish();
        for (size_t i = 0; i < table->count; i++) {
            int32_t parent = table->parent[i];
            CHECK_EQUAL(parent >= 0 ? table->device[parent] : -1, expected_parent(i));
        }
        CHECK(table->lane == NULL);
        CHECK_EQUAL(table->tracks[0].lanes, 0);
    }
}

/* The innermost one around a row, by looking at all. */
static int32_t innermost_around(size_t row)
{
    int32_t found = -1;
    for (size_t i = 0; i < row; i++) {
        if (table->end_ns[i] >= table->end_ns[row]) {
            found = (int32_t)i;
        }
    }
    return found;
}

/* Rows that overlap as they like. */
TEST(random_overlaps)
{
    enum { ROWS = 300 };
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t random = seed;
        set_up();
        for (int i = 0; i < ROWS; i++) {
            cprof_ns start_ns = (cprof_ns)(check_random(&random) % 100) * 5000;
            cprof_row row = row_between(start_ns, start_ns + (cprof_ns)(check_random(&random) % 20) * 5000);
            row.kind = CPROF_KIND_HOST;
            add(&row);
        }
        finish();
        for (size_t i = 0; i < ROWS; i++) {
            CHECK_EQUAL(table->parent[i], innermost_around(i));
        }
    }
}

/* Tasks that run by turns: each has a lane of its own, with what it calls. */
TEST(lanes_of_tasks)
{
    FILL(ROW(0, 100, 'A', .span = 1, SUSPENDABLE), ROW(1, 90, 'B', .span = 2, SUSPENDABLE),
         ROW(2, 120, 'C', .span = 3, SUSPENDABLE), ROW(10, 12, 'a', .span = 4, .parent_span = 1),
         ROW(13, 15, 'b', .span = 5, .parent_span = 2), ROW(16, 18, 'c', .span = 6, .parent_span = 3),
         ROW(16, 18, 'd', .span = 7, .parent_span = 6), ROW(110, 130, 'D', .span = 8, SUSPENDABLE));
    check_lanes("ABCabcdD", "01201220");
    CHECK_EQUAL(table->tracks[0].lanes, 2);
    CHECK_EQUAL(table->tracks[1].lanes, 0);
}

/* A generator is open while its consumer works: it goes out of the way, with what runs inside it. */
TEST(lanes_of_generators)
{
    FILL(ROW(0, 1000, 'M', .span = 1), ROW(10, 900, 'G', .span = 2, .parent_span = 1, SUSPENDABLE),
         ROW(20, 30, 'n', .span = 3, .parent_span = 1), ROW(31, 35, 'g', .span = 4, .parent_span = 2),
         ROW(40, 50, 'o', .span = 5, .parent_span = 1), ROW(41, 45, 'p', .span = 6, .parent_span = 5),
         ROW(910, 990, 'H', .span = 7, .parent_span = 1, SUSPENDABLE), ROW(920, 930, 'h', .span = 8, .parent_span = 7),
         ROW(42, 43, 'q', HOST), ROW(32, 33, 'r', HOST));
    check_lanes("MGngopHhqr", "0101000001");

    FILL(ROW(10, 900, 'G', .span = 2, SUSPENDABLE), ROW(15, 800, 'K', .span = 3, SUSPENDABLE), ROW(20, 30, 'n', .span = 4),
         ROW(40, 50, 'm', .span = 5), ROW(41, 42, 'k', .span = 6, .parent_span = 3));
    check_lanes("GnmKk", "10022");
}

/* A sibling that ended before, or began after, shares nothing. */
TEST(lanes_of_generators_that_share_nothing)
{
    FILL(ROW(0, 10, 'n', .span = 1), ROW(10, 20, 'G', .span = 2, SUSPENDABLE), ROW(20, 30, 'm', .span = 3),
         ROW(20, 25, 'H', .span = 4, .parent_span = 3, SUSPENDABLE), ROW(21, 22, 'x', .span = 5, .track = 1),
         ROW(22, 23, 'S', STEP));
    CHECK(table->lane == NULL);
}

/* A child that outlives its parent, and one whose parent is elsewhere. */
TEST(lanes_of_orphans)
{
    FILL(ROW(0, 50, 'A', .span = 1), ROW(10, 80, 'B', .span = 2, .parent_span = 1),
         ROW(60, 120, 'C', .span = 3, .parent_span = 2), ROW(90, 95, 'c', .span = 4, .parent_span = 3),
         ROW(11, 12, 'D', .span = 5, .parent_span = 1, .track = 1), ROW(13, 14, 'E', .span = 6, .parent_span = 99));
    check_lanes("ABCcDE", "010000");

    FILL(ROW(0, 100, 'A', .span = 1), ROW(10, 20, 'B', .span = 2), ROW(12, 14, 'C', .span = 3, .parent_span = 9));
    check_lanes("ABC", "010");
}

TEST(lanes_of_steps)
{
    FILL(ROW(0, 100, 'M', .span = 1), ROW(10, 40, 'S', STEP), ROW(40, 70, 'T', STEP),
         ROW(15, 20, 'a', .span = 2, .parent_span = 1), ROW(45, 75, 'b', .span = 3, .parent_span = 1),
         ROW(50, 55, 'c', .span = 4, .parent_span = 3));
    check_lanes("MSTabc", "000011");
}

/* A call of no time where its parent, or one before it, ends. */
TEST(lanes_of_moments)
{
    FILL(ROW(0, 10, 'A', .span = 1), ROW(5, 10, 'B', .span = 2, .parent_span = 1),
         ROW(10, 10, 'C', .span = 3, .parent_span = 1), ROW(10, 10, 'D', .span = 4), ROW(10, 20, 'E', .span = 5),
         ROW(10, 10, 'F', .span = 6, .parent_span = 5));
    CHECK(table->lane == NULL);
}

/* What does not last keeps the first lane. */
TEST(rows_without_lanes)
{
    FILL(ROW(0, 10, 'A'), ROW(6, 6, 'C', COUNTER), ROW(7, 7, 'D', INSTANT, .span = 5, .parent_span = 6));
    CHECK(table->lane == NULL);
}

/* Kernels of one stream that overlap, one of them within an annotation; their parents are on the host, or unknown. */
TEST(lanes_of_devices)
{
    enum { CALL = 7, US = 1000 };
    FILL(ROW(0, 90 * US, 'H', .span = CALL, .track = 1), ROW(0, 20 * US, 'N', DEVICE),
         ROW(1 * US, 9 * US, 'a', .parent_span = CALL, DEVICE), ROW(6 * US, 15 * US, 'B', .parent_span = CALL, DEVICE),
         ROW(12 * US, 40 * US, 'C', DEVICE), ROW(39500, 45 * US, 'D', DEVICE), ROW(41 * US, 60 * US, 'E', DEVICE));
    check_lanes("HNaBCDE", "0001201");
    CHECK_EQUAL(table->tracks[table->track[0]].lanes + table->tracks[table->track[1]].lanes, 2);
}

TEST(more_than_all_lanes)
{
    enum { ROWS = CPROF_TABLE_MAX_LANES + 50 };
    for (int i = 0; i < ROWS; i++) {
        cprof_row row = row_between(i, 1000 + i);
        row.span = (uint64_t)i + 1;
        add(&row);
    }
    finish();
    for (int i = 0; i < ROWS; i++) {
        CHECK_EQUAL(table->lane[i], i < CPROF_TABLE_MAX_LANES ? i : CPROF_TABLE_MAX_LANES - 1);
    }
    CHECK_EQUAL(table->tracks[0].lanes, CPROF_TABLE_MAX_LANES - 1);
}

/* Whether two rows can be drawn in one lane. */
static bool go_together(size_t a, size_t b)
{
    return table->end_ns[a] <= table->start_ns[b] || table->end_ns[b] <= table->end_ns[a];
}

/* The row in whose lane another is, innermost, at its start; -1: none. */
static int32_t around_in_lane(size_t row)
{
    for (size_t i = row; i-- > 0;) {
        if (table->track[i] == table->track[row] && table->lane[i] == table->lane[row] &&
            table->end_ns[i] > table->start_ns[row]) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* Tasks and generators at random: within a lane rows nest, and each lies within its parent, or within none. */
TEST(random_lanes)
{
    enum { ROWS = 400 };
    size_t moved = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint64_t random = seed;
        set_up();
        for (uint64_t i = 0; i < ROWS; i++) {
            cprof_row row = cprof_row_none;
            row.start_ns = (cprof_ns)i * 10;
            row.end_ns = row.start_ns + (cprof_ns)(check_random(&random) % 200);
            row.span = i + 1;
            row.parent_span = i > 0 && check_random(&random) % 2 ? i - check_random(&random) % (i < 3 ? i : 3) : 0;
            row.flags = check_random(&random) % 3 == 0 ? CPROF_ROW_SUSPENDABLE : 0;
            row.track = track_of(1, (int64_t)(check_random(&random) % 2));
            add(&row);
        }
        finish();
        for (size_t i = 0; i < ROWS; i++) {
            size_t lane = table->lane[i];
            moved += lane > 0;
            int32_t around = around_in_lane(i);
            CHECK(lane <= table->tracks[table->track[i]].lanes);
            CHECK(around < 0 || around == table->parent[i]);
            for (size_t j = 0; j < i; j++) {
                CHECK(table->track[j] != table->track[i] || table->lane[j] != lane || go_together(j, i));
            }
        }
    }
    CHECK(moved > 1000);
}

enum { SCRIPT_ROWS = 600 };

/* Adds row `number` of the script, with what it refers to. */
static cprof_status add_script_row(int number)
{
    char name[16];
    cprof_row row = cprof_row_none;
    (void)snprintf(name, sizeof name, "name %d", number);
    cprof_flow flow = {.id = (uint64_t)number};
    cprof_status status = cprof_table_text(table, cprof_name_of(name), &row.name);
    status = status == CPROF_OK ? cprof_table_track(table, number % 40, 0, 1, 0, &row.track) : status;
    status = status == CPROF_OK ? cprof_table_keep(table, cprof_name_of(name), &row.args_at) : status;
    status = status == CPROF_OK ? cprof_table_set_fact(table, cprof_name_of(name), cprof_name_of("1")) : status;
    row.start_ns = 1000 - number;
    row.end_ns = row.start_ns + number % 300;
    row.kind = number % 3 == 0 ? CPROF_KIND_HOST : CPROF_KIND_NODE;
    row.span = number % 3 == 0 ? 0 : (uint64_t)number;
    row.parent_span = number % 3 == 1 ? (uint64_t)(number + 1) - 3 * (uint64_t)(number % 2) : 0;
    row.flags = number % 5 == 0 ? CPROF_ROW_SUSPENDABLE : 0;
    row.device = number == SCRIPT_ROWS / 2 ? 0 : -1;
    status = status == CPROF_OK ? cprof_table_add(table, &row) : status;
    return status == CPROF_OK && number % 4 == 0 ? cprof_table_add_flow(table, &flow) : status;
}

/* G7: each allocation fails once, and what was to be done is done at the next try. */
static int refusals_of_script(uint64_t every)
{
    int refusals = 0;
    for (int number = 0; number < SCRIPT_ROWS; number++) {
        size_t rows = table->count;
        fake_alloc_fail(every);
        cprof_status status = add_script_row(number);
        bool failed = fake_alloc_has_failed();
        if (failed) {
            CHECK(status == CPROF_NO_MEMORY);
            CHECK_EQUAL(table->count, rows + (table->count > rows)); /* the row itself may have been in time */
            refusals++;
            if (table->count == rows) {
                CHECK(add_script_row(number) == CPROF_OK);
            }
        }
        CHECK_EQUAL(table->count, number + 1);
    }
    return refusals;
}

static void check_script(void)
{
    char name[16];
    for (size_t i = 0; i < table->count; i++) {
        int number = (int)(1000 - table->start_ns[i]);
        (void)snprintf(name, sizeof name, "name %d", number);
        CHECK(is_text(cprof_table_string(table, table->name[i]), name));
        CHECK(memcmp(table->kept + table->args_at[i], name, strlen(name)) == 0);
        CHECK_EQUAL(table->tracks[table->track[i]].pid, number % 40);
        CHECK_EQUAL(table->device[i], number == SCRIPT_ROWS / 2 ? 0 : -1);
        check_fact(name, "1");
    }
}

TEST(rows_without_memory)
{
    int refusals = 0;
    for (uint64_t nth = 1; nth <= 60; nth++) {
        set_up();
        refusals += refusals_of_script(nth);
        finish();
        check_script();
    }
    CHECK(refusals > SCRIPT_ROWS); /* names always need memory, lists and columns when they grow */
    fake_alloc_fail(1);
    CHECK(cprof_table_create() == NULL);
    CHECK(fake_alloc_has_failed());
}

/* G7, of finishing: slots and visits, order and its scratch, both lists of the index, the stack, children and siblings, what
 * is open, and lanes. */
TEST(finish_without_memory)
{
    enum { ALLOCATIONS = 11 };
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        set_up();
        for (int number = 0; number < SCRIPT_ROWS; number++) {
            CHECK(add_script_row(number) == CPROF_OK);
        }
        fake_alloc_fail(nth);
        cprof_status status = cprof_table_finish(table);
        failed = fake_alloc_has_failed();
        CHECK(status == (failed ? CPROF_NO_MEMORY : CPROF_OK));
        if (failed) {
            CHECK(!table->finished && table->lane == NULL);
            CHECK_EQUAL(table->count, SCRIPT_ROWS);
            for (size_t i = 0; i < table->count; i++) {
                CHECK_EQUAL(table->parent[i], NO_PARENT);
            }
            finish();
        }
        CHECK_EQUAL(failed ? ALLOCATIONS + 1 : nth, ALLOCATIONS + 1);
        CHECK(table->lane != NULL && table->parent[0] == NO_PARENT);
        check_script();
    }
}

FAKE_ALLOC_MAIN(set_up, tear_down)
