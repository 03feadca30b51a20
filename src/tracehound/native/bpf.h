/* Loading BPF objects: what kernel/bpf_object.py uses of libbpf, and a few calls of our own. */
struct bpf_object;
struct bpf_program;
struct bpf_map;
struct bpf_link;

/* Opens an object held in memory; btf_path is a kernel BTF to use instead of the running kernel's,
 * or NULL. */
struct bpf_object *bpf_open(const void *image, size_t size, const char *name, const char *btf_path);
/* The object's own BTF, as libbpf completed it. */
const void *bpf_object_btf(const struct bpf_object *object, uint32_t *size);
/* Moves what libbpf has said in this thread since the last call into `text`; returns its length. */
size_t bpf_take_log(char *text, size_t room);

int bpf_object__load(struct bpf_object *object);
void bpf_object__close(struct bpf_object *object);
struct bpf_program *bpf_object__next_program(const struct bpf_object *object,
					     struct bpf_program *previous);
struct bpf_map *bpf_object__next_map(const struct bpf_object *object,
				     const struct bpf_map *previous);
const char *bpf_program__name(const struct bpf_program *program);
const char *bpf_program__section_name(const struct bpf_program *program);
int bpf_program__set_autoload(struct bpf_program *program, bool autoload);
int bpf_program__fd(const struct bpf_program *program);
struct bpf_link *bpf_program__attach(const struct bpf_program *program);
int bpf_link__destroy(struct bpf_link *link);
const char *bpf_map__name(const struct bpf_map *map);
int bpf_map__fd(const struct bpf_map *map);
int bpf_map__reuse_fd(struct bpf_map *map, int fd);
int bpf_map__set_max_entries(struct bpf_map *map, uint32_t max_entries);
uint32_t bpf_map__max_entries(const struct bpf_map *map);
void *bpf_map__initial_value(struct bpf_map *map, size_t *size);
int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int bpf_map_lookup_elem(int fd, const void *key, void *value);
int bpf_map_delete_elem(int fd, const void *key);
int bpf_map_get_next_key(int fd, const void *key, void *next);
int bpf_map_get_fd_by_id(uint32_t id);
int libbpf_num_possible_cpus(void);
/* Name of a map, `name` has 16 bytes; 0 or -errno. */
int bpf_map_name(int fd, char *name);
/* Runs a program of type `syscall` in this thread; `context` is read and written. 0 or -errno. */
int bpf_run_here(int program_fd, void *context, uint32_t size);
/* Opens what an iterator program lists; a descriptor or -errno. */
int bpf_open_iterator(const struct bpf_program *program);
/* Attaches a uprobe program to a file's offset in every process; NULL: errno says why. */
struct bpf_link *bpf_attach_point(const struct bpf_program *program, const char *path,
				  uint64_t offset, uint64_t cookie);
int bpf_program__set_expected_attach_type(struct bpf_program *program, int type);
/* The same at many offsets of a file by one link, of a program that was loaded with the attach type
 * ATTACH_UPROBE_MULTI; a descriptor or -errno. Kernels before 6.6 refuse with EINVAL. */
int bpf_attach_points(int program_fd, const char *path, const uint64_t *offsets,
		      const uint64_t *cookies, uint32_t count);
