// Sorting and counting of KEYS integer keys; KEYS and BLOCK are powers of two.

// xorshift, so that the host can compute the same keys
kernel void make_keys(global uint *keys, const uint seed)
{
    uint x = seed + get_global_id(0) * 2654435769u;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    keys[get_global_id(0)] = x & KEY_MASK;
}

// one comparison pass of the bitonic network over pairs `distance` apart
kernel void bitonic_pass(global uint *keys, const uint run, const uint distance)
{
    const uint i = get_global_id(0), left = 2 * i - (i & (distance - 1)), right = left + distance;
    const uint a = keys[left], b = keys[right];
    const bool descending = (left & run) != 0;
    if ((a > b) != descending) {
        keys[left] = b;
        keys[right] = a;
    }
}

// the whole network within blocks of BLOCK keys
kernel void bitonic_blocks(global uint *keys)
{
    const uint start = get_global_id(0) * BLOCK;
    for (uint run = 2; run <= BLOCK; run *= 2)
        for (uint distance = run / 2; distance > 0; distance /= 2)
            for (uint i = 0; i < BLOCK / 2; i++) {
                const uint left = start + 2 * i - (i & (distance - 1)), right = left + distance;
                const uint a = keys[left], b = keys[right];
                const bool descending = (left & run) != 0;
                if ((a > b) != descending) {
                    keys[left] = b;
                    keys[right] = a;
                }
            }
}

// the passes of one merge whose pairs lie within blocks
kernel void bitonic_merge_blocks(global uint *keys, const uint run)
{
    const uint start = get_global_id(0) * BLOCK;
    for (uint distance = BLOCK / 2; distance > 0; distance /= 2)
        for (uint i = 0; i < BLOCK / 2; i++) {
            const uint left = start + 2 * i - (i & (distance - 1)), right = left + distance;
            const uint a = keys[left], b = keys[right];
            const bool descending = (left & run) != 0;
            if ((a > b) != descending) {
                keys[left] = b;
                keys[right] = a;
            }
        }
}

kernel void mark_first(global const uint *keys, global uint *flags)
{
    const uint i = get_global_id(0);
    flags[i] = i == 0 || keys[i] != keys[i - 1];
}

// inclusive scan within blocks, and each block's total
kernel void scan_blocks(global uint *values, global uint *totals)
{
    const uint start = get_global_id(0) * BLOCK;
    uint sum = 0;
    for (uint i = start; i < start + BLOCK; i++)
        values[i] = sum += values[i];
    totals[get_global_id(0)] = sum;
}

kernel void scan_totals(global uint *totals)
{
    uint sum = 0;
    for (uint i = 0; i < KEYS / BLOCK; i++) {
        const uint value = totals[i];
        totals[i] = sum;
        sum += value;
    }
}

kernel void add_totals(global uint *values, global const uint *totals)
{
    values[get_global_id(0)] += totals[get_global_id(0) / BLOCK];
}

kernel void compact(global const uint *keys, global const uint *places, global uint *distinct)
{
    const uint i = get_global_id(0);
    if (i == 0 || keys[i] != keys[i - 1])
        distinct[places[i] - 1] = keys[i];
}

kernel void checksum(global const uint *distinct, global const uint *places, global uint *out)
{
    uint sum = 0;
    const uint count = places[KEYS - 1];
    for (uint i = 0; i < count; i++)
        sum = sum * 31 + distinct[i];
    out[0] = count;
    out[1] = sum;
}
