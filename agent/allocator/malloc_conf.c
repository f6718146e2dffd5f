/* jemalloc reads its settings here; its own definition of this symbol is weak and empty. Figures are in
 * docs/decisions/0009-allocator-settings-linked-in.md and 0014-packed-lists.md. */
const char *_rjem_malloc_conf = "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0,lg_extent_max_active_fit:20";
