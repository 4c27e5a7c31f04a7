/* A stand-in for NVIDIA's libcuda.so.1, built by the tests: it checks what it is called with as the driver does,
   runs kernels as time that passes, and writes each call to the file $STANDIN_LOG.

   $STANDIN_GPUS (1) are there, each with $STANDIN_FREE_MIB (1024) of free memory. $STANDIN_FAIL, such as
   cuMemAlloc_v2:2, makes a call fail with a result code. What was not given back is a line LEFT at the end. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, MEMORY = 2, UNINITIALISED = 3, NO_DEVICE = 100, BAD_DEVICE = 101, PTX = 218,
       NO_CONTEXT = 201, BAD_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600 };
enum { CONTEXT = 0x11, MODULE, FUNCTION, STREAM, EVENT };

struct object { int kind, alive, device, recorded; uint64_t at_ns, size; struct object *next; };
static struct object *objects, *current;
static int is_ready, contexts_of[64];
static uint64_t taken;
static struct block { uint64_t address, size; int alive; } blocks[256];
static int block_count;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void say(const char *format, ...) {
    const char *path = getenv("STANDIN_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (!log) return;
    va_list rest;
    va_start(rest, format);
    char line[512];
    int n = snprintf(line, sizeof line, "%d ", (int)getpid());
    vsnprintf(line + n, sizeof line - n, format, rest);
    fprintf(log, "%s\n", line);
    fclose(log);
    va_end(rest);
}

static int wrong(int code, const char *why) { say("FAULT %s", why); return code; }
static int count(void) { const char *n = getenv("STANDIN_GPUS"); return n ? atoi(n) : 1; }
static uint64_t total(void) {
    const char *n = getenv("STANDIN_FREE_MIB");
    return (n ? strtoull(n, NULL, 10) : 1024) << 20;
}
static int told_to_fail(const char *name) {
    const char *fail = getenv("STANDIN_FAIL");
    size_t n = strlen(name);
    return fail && !strncmp(fail, name, n) && fail[n] == ':' ? atoi(fail + n + 1) : 0;
}
static struct object *make(int kind) {
    struct object *o = calloc(1, sizeof *o);
    o->kind = kind, o->alive = 1, o->next = objects, objects = o;
    return o;
}
static int is_a(struct object *o, int kind) {
    for (struct object *each = objects; each; each = each->next)
        if (each == o) return o->alive && o->kind == kind;
    return 0;
}
#define BEGIN(name) \
    say(name); \
    if (told_to_fail(name)) return told_to_fail(name); \
    if (!is_ready) return wrong(UNINITIALISED, name " before cuInit")
#define IN_CONTEXT(name) BEGIN(name); if (!current) return wrong(NO_CONTEXT, name " without a context")
#define EXPECT(what, kind, name) if (!is_a(what, kind)) return wrong(BAD_HANDLE, name " of what is none")

int cuInit(unsigned flags) {
    say("cuInit");
    if (told_to_fail("cuInit")) return told_to_fail("cuInit");
    if (flags) return wrong(INVALID, "cuInit with flags");
    if (!count()) return NO_DEVICE;
    is_ready = 1;
    return OK;
}
int cuGetErrorString(int code, const char **text) {
    static char words[40];
    snprintf(words, sizeof words, "error %d of the stand-in", code);
    *text = words;
    return OK;
}
int cuDeviceGetCount(int *n) { BEGIN("cuDeviceGetCount"); *n = count(); return OK; }
int cuDeviceGet(int *device, int ordinal) {
    BEGIN("cuDeviceGet");
    if (ordinal < 0 || ordinal >= count()) return wrong(BAD_DEVICE, "cuDeviceGet beyond the count");
    *device = ordinal + 7;  /* a handle is no ordinal */
    return OK;
}
static int ordinal_of(int device) { return device >= 7 && device < 7 + count() ? device - 7 : -1; }
#define DEVICE(name) if (ordinal_of(device) < 0) return wrong(BAD_DEVICE, name " of no device")
int cuDeviceGetName(char *name, int size, int device) {
    BEGIN("cuDeviceGetName"); DEVICE("cuDeviceGetName");
    snprintf(name, size, "Stand-in %d", ordinal_of(device));
    return OK;
}
int cuDeviceGetPCIBusId(char *id, int size, int device) {
    BEGIN("cuDeviceGetPCIBusId"); DEVICE("cuDeviceGetPCIBusId");
    snprintf(id, size, "0000:%02X:00.0", ordinal_of(device) + 0x1a);
    return OK;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    BEGIN("cuDeviceGetUuid_v2"); DEVICE("cuDeviceGetUuid_v2");
    for (int i = 0; i < 16; i++) uuid[i] = 16 * ordinal_of(device) + i;
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    BEGIN("cuDeviceGetAttribute"); DEVICE("cuDeviceGetAttribute");
    if (attribute == 16) *value = 132;
    else if (attribute == 20) *value = getenv("STANDIN_PROHIBITED") ? 2 : 0;
    else return wrong(INVALID, "cuDeviceGetAttribute of another attribute");
    return OK;
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    BEGIN("cuDevicePrimaryCtxSetFlags_v2"); DEVICE("cuDevicePrimaryCtxSetFlags_v2");
    return flags & ~0x1fu ? wrong(INVALID, "cuDevicePrimaryCtxSetFlags_v2 with unknown flags") : OK;
}
int cuDevicePrimaryCtxRetain(struct object **context, int device) {
    BEGIN("cuDevicePrimaryCtxRetain"); DEVICE("cuDevicePrimaryCtxRetain");
    contexts_of[ordinal_of(device)]++;
    *context = make(CONTEXT);
    (*context)->device = ordinal_of(device);
    return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    BEGIN("cuDevicePrimaryCtxRelease_v2"); DEVICE("cuDevicePrimaryCtxRelease_v2");
    if (contexts_of[ordinal_of(device)]-- < 1) return wrong(INVALID, "a context released twice");
    for (struct object *o = objects; o; o = o->next)
        if (o->kind == CONTEXT && o->device == ordinal_of(device)) o->alive = 0;
    return OK;
}
int cuCtxSetCurrent(struct object *context) {
    BEGIN("cuCtxSetCurrent");
    if (context) EXPECT(context, CONTEXT, "cuCtxSetCurrent");
    current = context;
    return OK;
}
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    IN_CONTEXT("cuMemGetInfo_v2");
    *free_bytes = total() - taken, *total_bytes = total();
    return OK;
}
int cuMemAlloc_v2(uint64_t *address, size_t size) {
    IN_CONTEXT("cuMemAlloc_v2");
    if (!size) return wrong(INVALID, "cuMemAlloc_v2 of nothing");
    if (size > total() - taken) return wrong(MEMORY, "cuMemAlloc_v2 of more than there is");
    blocks[block_count] = (struct block){0x700000000000ull + ((uint64_t)block_count << 40), size, 1};
    *address = blocks[block_count++].address;
    taken += size;
    say("HELD %zu", size);
    return OK;
}
static struct block *block_at(uint64_t address) {
    for (int i = 0; i < block_count; i++) if (blocks[i].alive && blocks[i].address == address) return blocks + i;
    return NULL;
}
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t size) {
    IN_CONTEXT("cuMemsetD8_v2");
    struct block *found = block_at(address);
    (void)value;
    return found && size <= found->size ? OK : wrong(INVALID, "cuMemsetD8_v2 outside of what is held");
}
int cuMemFree_v2(uint64_t address) {
    IN_CONTEXT("cuMemFree_v2");
    struct block *found = block_at(address);
    if (!found) return wrong(INVALID, "cuMemFree_v2 of what is not held");
    found->alive = 0, taken -= found->size;
    return OK;
}
int cuModuleLoadData(struct object **module, const char *image) {
    IN_CONTEXT("cuModuleLoadData");
    /* PTX is text that ends with a zero byte, with these three directives in this order. */
    const char *version = strstr(image, "\n.version "), *target = strstr(image, "\n.target sm_");
    const char *entry = strstr(image, ".entry gpuscale_spin(");
    if (!version || !target || !entry || version > target || target > entry) return wrong(PTX, "no such PTX");
    *module = make(MODULE);
    return OK;
}
int cuModuleGetFunction(struct object **function, struct object *module, const char *name) {
    IN_CONTEXT("cuModuleGetFunction");
    EXPECT(module, MODULE, "cuModuleGetFunction");
    if (strcmp(name, "gpuscale_spin")) return wrong(NOT_FOUND, "another kernel");
    *function = make(FUNCTION);
    return OK;
}
int cuModuleUnload(struct object *module) {
    IN_CONTEXT("cuModuleUnload");
    EXPECT(module, MODULE, "cuModuleUnload");
    module->alive = 0;
    for (struct object *o = objects; o; o = o->next) if (o->kind == FUNCTION) o->alive = 0;
    return OK;
}
int cuStreamCreate(struct object **stream, unsigned flags) {
    IN_CONTEXT("cuStreamCreate");
    if (flags > 1) return wrong(INVALID, "cuStreamCreate with unknown flags");
    *stream = make(STREAM);
    return OK;
}
int cuStreamSynchronize(struct object *stream) {
    IN_CONTEXT("cuStreamSynchronize");
    EXPECT(stream, STREAM, "cuStreamSynchronize");
    while (now_ns() < stream->at_ns) usleep(200);
    return OK;
}
int cuStreamDestroy_v2(struct object *stream) {
    IN_CONTEXT("cuStreamDestroy_v2");
    EXPECT(stream, STREAM, "cuStreamDestroy_v2");
    stream->alive = 0;
    return OK;
}
int cuEventCreate(struct object **event, unsigned flags) {
    IN_CONTEXT("cuEventCreate");
    if (flags & 2) return wrong(INVALID, "an event without a time");
    *event = make(EVENT);
    return OK;
}
int cuEventRecord(struct object *event, struct object *stream) {
    IN_CONTEXT("cuEventRecord");
    EXPECT(event, EVENT, "cuEventRecord");
    EXPECT(stream, STREAM, "cuEventRecord");
    event->recorded = 1;
    event->at_ns = stream->at_ns > now_ns() ? stream->at_ns : now_ns();
    return OK;
}
int cuEventQuery(struct object *event) {
    IN_CONTEXT("cuEventQuery");
    EXPECT(event, EVENT, "cuEventQuery");
    if (!event->recorded) return wrong(INVALID, "a query of an event that was not recorded");
    return now_ns() < event->at_ns ? NOT_READY : OK;
}
int cuEventElapsedTime(float *ms, struct object *from, struct object *to) {
    IN_CONTEXT("cuEventElapsedTime");
    EXPECT(from, EVENT, "cuEventElapsedTime");
    EXPECT(to, EVENT, "cuEventElapsedTime");
    if (now_ns() < to->at_ns) return NOT_READY;
    *ms = (to->at_ns - from->at_ns) / 1e6f;
    return OK;
}
int cuEventDestroy_v2(struct object *event) {
    IN_CONTEXT("cuEventDestroy_v2");
    EXPECT(event, EVENT, "cuEventDestroy_v2");
    event->alive = 0;
    return OK;
}
int cuLaunchKernel(struct object *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, struct object *stream, void **arguments, void **extra) {
    IN_CONTEXT("cuLaunchKernel");
    EXPECT(function, FUNCTION, "cuLaunchKernel");
    EXPECT(stream, STREAM, "cuLaunchKernel");
    uint64_t length = *(uint64_t *)arguments[0], rounds = *(uint64_t *)arguments[1];
    if (!gx || gx > 132 || gy != 1 || gz != 1 || bx != 32 || by != 1 || bz != 1 || shared || extra || !rounds)
        return wrong(INVALID, "cuLaunchKernel with another shape");
    uint64_t begin = stream->at_ns > now_ns() ? stream->at_ns : now_ns();
    stream->at_ns = begin + length;
    say("RUN %llu %llu %u", (unsigned long long)begin, (unsigned long long)length, gx);
    return OK;
}

__attribute__((destructor)) static void end(void) {
    int left = 0;
    for (struct object *o = objects; o; o = o->next) left += o->alive;
    if (left || taken) say("LEFT %d objects, %llu bytes", left, (unsigned long long)taken);
    else say("END");
}
