#include "cprofiling/base/text.h"

#include <string.h>

enum {
    PER_WORD = 8,
    LAST_CODE = 0x10ffff,
};

static const char replacement[] = "\xef\xbf\xbd";

/* The number of bytes of a character by its first one; 0: invalid. */
static size_t length_by(unsigned char first)
{
    if (first < 0x80) {
        return 1;
    }
    return first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

size_t cprof_text_decode(const char *bytes, size_t left, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = length_by((unsigned char)bytes[0]);
    if (length == 0 || length > left) {
        return 0;
    }
    *code = (unsigned char)bytes[0] & (length == 1 ? 0x7fU : 0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if (((unsigned char)bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
        *code = *code << 6 | ((unsigned char)bytes[i] & 0x3f);
    }
    return *code >= least[length] && *code <= LAST_CODE ? length : 0;
}

/* The number of bytes of the character that begins here; 0: invalid. */
static size_t character(const char *bytes, size_t left)
{
    uint32_t code;
    size_t length = cprof_text_decode(bytes, left, &code);
    return length > 0 && !cprof_text_is_surrogate(code) ? length : 0;
}

/* How many bytes to pass over that are ASCII. */
static size_t plain(cprof_name bytes)
{
    size_t at = 0;
    uint64_t eight;
    for (; bytes.length - at >= PER_WORD; at += PER_WORD) {
        memcpy(&eight, bytes.bytes + at, sizeof eight);
        if ((eight & UINT64_C(0x8080808080808080)) != 0) {
            break;
        }
    }
    while (at < bytes.length && (unsigned char)bytes.bytes[at] < 0x80) {
        at++;
    }
    return at;
}

bool cprof_text_is_valid(cprof_name bytes)
{
    size_t length = 1;
    for (size_t at = plain(bytes); length > 0 && at < bytes.length; at += length) {
        cprof_name rest = {bytes.bytes + at, bytes.length - at};
        length = (unsigned char)rest.bytes[0] < 0x80 ? plain(rest) : character(rest.bytes, rest.length);
    }
    return length > 0;
}

size_t cprof_text_repair(cprof_name bytes, char *out)
{
    size_t total = 0;
    while (bytes.length > 0) {
        uint32_t code;
        size_t length = character(bytes.bytes, bytes.length);
        size_t taken = length > 0 ? length : cprof_text_decode(bytes.bytes, bytes.length, &code);
        size_t made = length > 0 ? length : sizeof replacement - 1;
        if (out != NULL) {
            memcpy(out + total, length > 0 ? bytes.bytes : replacement, made);
        }
        total += made;
        taken = taken > 0 ? taken : 1;
        bytes = (cprof_name){bytes.bytes + taken, bytes.length - taken};
    }
    return total;
}

bool cprof_name_is_legal(cprof_name name)
{
    uint32_t code = 1;
    size_t length = 1;
    for (size_t at = 0; length != 0 && code != 0 && at < name.length; at += length) {
        length = cprof_text_decode(name.bytes + at, name.length - at, &code);
    }
    return name.length <= CPROF_NAME_LIMIT && length != 0 && code != 0;
}

int cprof_name_compare(cprof_name a, cprof_name b)
{
    int order = memcmp(a.bytes, b.bytes, a.length < b.length ? a.length : b.length);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

int cprof_names_compare(cprof_names a, cprof_names b)
{
    int order = cprof_name_compare(a.stage, b.stage);
    return order != 0 ? order : cprof_name_compare(a.node, b.node);
}
