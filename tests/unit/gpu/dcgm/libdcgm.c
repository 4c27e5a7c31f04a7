/* A stand-in for DCGM's client library and the host engine behind it, for tests.
 *
 * Layouts, versions and codes are those of NVIDIA DCGM 4.6.1 (dcgm_structs.h, dcgm_agent.h), with sizes measured on
 * those headers. What a call breaks of their rules is a fault, which a test asks for in the end. Functions that
 * begin with standin_ are the test's: they are the host engine's state.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, BADPARAM = -1, NOT_SUPPORTED = -6, VER_MISMATCH = -12, NO_DATA = -14, NOT_WATCHED = -16,
       CONNECTION_NOT_VALID = -21, DUPLICATE_KEY = -26, PROFILING_NOT_SUPPORTED = -36 };
enum { FE_GPU = 1, FE_GPU_I = 4, UUID = 54, GPUS = 4, FIELDS = 1100, GROUPS = 32 };

typedef struct { unsigned group, id; } Pair;
typedef struct { unsigned version, persists, timeout_ms, is_socket; } Connect;
typedef struct {
    unsigned version, group, entity;
    unsigned short field, type;
    int status;
    unsigned unused;
    int64_t ts;
    union { int64_t i64; double dbl; char str[256]; char blob[4096]; } value;
} Value;
typedef struct { Pair entity, parent; char uuid[128]; unsigned index, instance, compute, profile, slices; } Instance;
typedef struct { unsigned version, count; Instance list[448]; } Hierarchy;
typedef struct { unsigned short major, minor; unsigned count; unsigned short fields[64]; } MetricGroup;
typedef struct { unsigned version, unused, gpu, count; MetricGroup groups[10]; } MetricGroups;

_Static_assert(sizeof(Connect) == 16 && sizeof(Value) == 4128 && sizeof(Hierarchy) == 73480, "layout");
_Static_assert(sizeof(MetricGroups) == 1376 && __builtin_offsetof(Value, value) == 32, "layout");

typedef struct { char name[256]; Pair members[16]; int count; } Group;
typedef struct { char name[256]; unsigned short fields[128]; int count; } FieldGroup;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char fault_text[512];
static int gpus, is_away, is_hanging, profiling_code, connections, disconnections, largest_ask;
static uintptr_t open_handle, next_handle = 100;
static Instance instances[8];
static unsigned instance_count;
static Group groups[GROUPS];
static FieldGroup field_groups[GROUPS];
static int group_count, field_group_count, watch_code;
static long long last_interval_us;
static struct { int kind, has, status; char type; int64_t i, ts; double d; int watched; } cells[64][FIELDS];

static unsigned place(unsigned group, unsigned id) { return group == FE_GPU ? id : 16 + id; }

static int fault(const char *what) {
    if (!fault_text[0]) snprintf(fault_text, sizeof fault_text, "%s", what);
    return BADPARAM;
}

static int reached(uintptr_t handle) {
    while (is_hanging) usleep(1000);
    if (is_away || handle != open_handle || handle == 0) return CONNECTION_NOT_VALID;
    return OK;
}

const char *errorString(int code) {
    switch (code) {
    case NOT_WATCHED: return "Field is not being watched";
    case NO_DATA: return "No data is available";
    case CONNECTION_NOT_VALID: return "The connection to the host engine is not valid any longer";
    case PROFILING_NOT_SUPPORTED: return "Profiling is not supported for this group of GPUs or GPU";
    default: return code == OK ? "Success" : NULL;
    }
}

int dcgmInit(void) { return OK; }

int dcgmConnect_v2(const char *address, Connect *options, uintptr_t *handle) {
    if (options->version != 0x2000010) return VER_MISMATCH;
    if (options->timeout_ms == 0) fault("connect without a timeout");
    if (options->is_socket != (address[0] == '/')) fault("connect with the wrong kind of address");
    if (is_away) return CONNECTION_NOT_VALID;
    if (open_handle) fault("a second connection");
    connections++;
    *handle = open_handle = ++next_handle;
    return OK;
}

int dcgmDisconnect(uintptr_t handle) {
    disconnections++;
    int was_open = handle == open_handle;
    open_handle = 0;
    group_count = field_group_count = 0;
    for (int p = 0; p < 64; p++) for (int f = 0; f < FIELDS; f++) cells[p][f].watched = 0;
    return was_open && !is_away ? OK : CONNECTION_NOT_VALID;
}

int dcgmGetAllDevices(uintptr_t handle, unsigned ids[32], int *count) {
    int code = reached(handle);
    if (code) return code;
    for (int n = 0; n < gpus; n++) ids[n] = n;
    *count = gpus;
    return OK;
}

int dcgmGetGpuInstanceHierarchy(uintptr_t handle, Hierarchy *found) {
    int code = reached(handle);
    if (code) return code;
    if (found->version != 0x2011f08) return VER_MISMATCH;
    found->count = instance_count;
    memcpy(found->list, instances, sizeof(Instance) * instance_count);
    return OK;
}

int dcgmProfGetSupportedMetricGroups(uintptr_t handle, MetricGroups *found) {
    int code = reached(handle);
    if (code) return code;
    if (found->version != 0x3000560) return VER_MISMATCH;
    if (found->gpu >= (unsigned)gpus) return fault("metric groups of no GPU");
    if (profiling_code) return profiling_code;
    found->count = 2;
    found->groups[0] = (MetricGroup){1, 0, 2, {1001, 1002}};
    found->groups[1] = (MetricGroup){2, 0, 2, {1004, 1009}};
    return OK;
}

int dcgmGroupCreate(uintptr_t handle, int type, const char *name, uintptr_t *id) {
    int code = reached(handle);
    if (code) return code;
    if (type != 1) return fault("a group that is not empty");
    for (int n = 0; n < group_count; n++) if (!strcmp(groups[n].name, name)) return DUPLICATE_KEY;
    groups[group_count].count = 0;
    snprintf(groups[group_count].name, 256, "%s", name);
    *id = 0x100000000ULL + group_count++;  /* wider than an int, as handles may be */
    return OK;
}

int dcgmGroupAddEntity(uintptr_t handle, uintptr_t id, int kind, unsigned entity) {
    int code = reached(handle);
    if (code) return code;
    if (id < 0x100000000ULL || id - 0x100000000ULL >= (uintptr_t)group_count) return fault("an unknown group");
    Group *group = &groups[id - 0x100000000ULL];
    group->members[group->count++] = (Pair){kind, entity};
    return OK;
}

int dcgmFieldGroupCreate(uintptr_t handle, int count, const unsigned short *fields, const char *name, uintptr_t *id) {
    int code = reached(handle);
    if (code) return code;
    if (count < 1 || count > 128) return fault("a field group of a wrong size");
    FieldGroup *group = &field_groups[field_group_count];
    memcpy(group->fields, fields, sizeof(unsigned short) * count);
    group->count = count;
    snprintf(group->name, 256, "%s", name);
    *id = 0x200000000ULL + field_group_count++;
    return OK;
}

int dcgmWatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields, long long interval_us, double age_s, int samples) {
    int code = reached(handle);
    if (code) return code;
    if (group < 0x100000000ULL || fields < 0x200000000ULL) return fault("unknown groups are watched");
    if (age_s <= 0 && samples <= 0) return fault("a watch that keeps everything");
    if (watch_code) return watch_code;
    last_interval_us = interval_us;
    Group *g = &groups[group - 0x100000000ULL];
    FieldGroup *f = &field_groups[fields - 0x200000000ULL];
    for (int m = 0; m < g->count; m++)
        for (int n = 0; n < f->count; n++) cells[place(g->members[m].group, g->members[m].id)][f->fields[n]].watched = 1;
    return OK;
}

int dcgmEntitiesGetLatestValues(uintptr_t handle, Pair *entities, unsigned entity_count, unsigned short *fields,
                                unsigned field_count, unsigned flags, Value *values) {
    int code = reached(handle);
    if (code) return code;
    if ((int)(entity_count * field_count) > largest_ask) largest_ask = entity_count * field_count;
    pthread_mutex_lock(&lock);
    /* Any order is allowed: the last entity comes first. */
    for (unsigned e = 0; e < entity_count; e++)
        for (unsigned f = 0; f < field_count; f++) {
            Pair entity = entities[entity_count - 1 - e];
            Value *value = values++;
            memset(value, 0, sizeof *value);
            *value = (Value){.version = 0x2001020, .group = entity.group, .entity = entity.id, .field = fields[f]};
            if (fields[f] == UUID) {
                if (flags != 1) fault("a UUID that is not asked of the driver");
                value->type = 's';
                snprintf(value->value.str, 256, "GPU-%u", entity.id);
                continue;
            }
            typeof(cells[0][0]) *cell = &cells[place(entity.group, entity.id)][fields[f]];
            value->type = cell->type ? cell->type : 'd';
            if (!cell->watched) value->status = NOT_WATCHED;
            else if (!cell->has) value->status = NO_DATA;
            else {
                value->status = cell->status;
                value->ts = cell->ts;
                if (value->type == 'd') value->value.dbl = cell->d;
                else value->value.i64 = cell->i;
            }
        }
    pthread_mutex_unlock(&lock);
    return OK;
}

/* The test's side. */

void standin_reset(int count) {
    while (open_handle) usleep(1000);
    fault_text[0] = 0;
    is_away = is_hanging = profiling_code = watch_code = connections = disconnections = largest_ask = 0;
    gpus = count;
    instance_count = 0;
    memset(cells, 0, sizeof cells);
}
void standin_away(int away) { is_away = away; }
void standin_hang(int hangs) { is_hanging = hangs; }
void standin_profiling(int code) { profiling_code = code; }
void standin_watching(int code) { watch_code = code; }
int standin_connections(void) { return connections; }
int standin_largest_ask(void) { return largest_ask; }
int standin_is_open(void) { return open_handle != 0; }
long long standin_interval_us(void) { return last_interval_us; }
const char *standin_fault(void) { return fault_text; }
void standin_instance(unsigned entity, unsigned gpu, unsigned nvml) {
    Instance found = {.entity = {FE_GPU_I, entity}, .parent = {FE_GPU, gpu}, .index = gpu, .instance = nvml};
    snprintf(found.uuid, sizeof found.uuid, "GPU-%u", gpu);
    instances[instance_count++] = found;
}
void standin_double(unsigned group, unsigned entity, int field, double value, int64_t ts_us) {
    pthread_mutex_lock(&lock);
    typeof(cells[0][0]) *cell = &cells[place(group, entity)][field];
    cell->type = 'd', cell->d = value, cell->ts = ts_us, cell->has = 1, cell->status = OK;
    pthread_mutex_unlock(&lock);
}
void standin_integer(unsigned group, unsigned entity, int field, int64_t value, int64_t ts_us) {
    pthread_mutex_lock(&lock);
    typeof(cells[0][0]) *cell = &cells[place(group, entity)][field];
    cell->type = 'i', cell->i = value, cell->ts = ts_us, cell->has = 1, cell->status = OK;
    pthread_mutex_unlock(&lock);
}
