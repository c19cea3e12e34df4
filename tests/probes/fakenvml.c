/* A stand-in for libnvidia-ml.so.1, so that the real pynvml runs in tests without a GPU.
 *
 * What it answers is written in the text file that FAKE_NVML_SCRIPT names, read anew when it changes, one
 * directive a line; I is a device's index:
 *
 *   count N                         devices
 *   driver TEXT                     driver version (one word)
 *   name I TEXT    uuid I TEXT      (one word each; "_" in a name stands for a space)
 *   util I GPU MEM                  percent, over the driver's window
 *   sample I STAMP PERCENT          one utilisation sample; as many lines as there are samples
 *   zero I                          no samples: the sizing call succeeds with 0 items
 *   mem I TOTAL RESERVED FREE USED  bytes
 *   power I MW     limit I MW     energy I MJ     temp I C
 *   proc I PID BYTES                one process; BYTES "na" where the driver does not tell
 *   clock I SM MEM SMMAX MEMMAX     MHz
 *   reasons I BITS                  why the clocks are held down, hexadecimal
 *   field I ID TYPE VALUE           one field value; TYPE as in nvmlValueType_t
 *   pcie I TX RX                    KB/s, over 20 ms
 *   link I GEN GENMAX WIDTH WIDTHMAX
 *   share I PID STAMP SM            one utilisation sample of a process
 *   ecc I ERRORS    rows I CORRECTED UNCORRECTED
 *   mig I MODE                      1: the GPU is split up; its instances are devices 10 * (I + 1) + SLOT, and
 *                                   those are there that have a uuid
 *   xid I NUMBER                    one message; those that come after the registration are told, each once
 *   ret FUNCTION CODE [I]           the function (without "nvml") answers CODE, for one device or for all
 *   hang FUNCTION                   the function does not return while this line is there
 *   delay FUNCTION MS [I]           the function takes so long, for one device or for all
 *   lost I                          the GPU fell off the bus: whatever asks it or its instances answers 15
 *   gpi I NUMBER                    the number of instance I in its GPU
 *   gpm I NUMBER PERCENT            load of the instance with that number, by GPM
 *   part I METRIC VALUE             a metric of the whole GPU, by GPM
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __APPLE__
#define CHANGED(about) ((long long)(about).st_mtimespec.tv_sec * 1000000000 + (about).st_mtimespec.tv_nsec)
#else
#define CHANGED(about) ((long long)(about).st_mtim.tv_sec * 1000000000 + (about).st_mtim.tv_nsec)
#endif

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    GPU_IS_LOST = 15,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    TIMEOUT = 10,
    INSUFFICIENT_SIZE = 7,
    VERSION_MISMATCH = 25,
};
#define DEVICES 8
#define SLOTS 7
#define HANDLES (10 * DEVICES + 10)
#define NOT_TOLD UINT64_MAX

typedef struct { int index; } Device;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } MemoryV2;
typedef struct { unsigned pid; uint64_t used; unsigned instance, compute; } Process;
typedef union { double d; unsigned u; unsigned long long ull; } Value;
typedef struct { uint64_t stamp; Value value; } Sample;
typedef struct { unsigned version; int sensor; int celsius; } Temperature;

typedef struct {
    unsigned pid;
    unsigned long long stamp;
    unsigned sm, memory, encoder, decoder;
} Share;
typedef struct {
    unsigned id, scope;
    int64_t stamp, latency;
    int type, code;
    Value value;
} Field;
typedef struct { int index; } Events;
typedef struct {
    Device *device;
    unsigned long long type, data;
    unsigned instance, compute;
} Event;

typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { int device, instance; unsigned long long number; } GpmSample;
typedef struct {
    unsigned id, code;
    double value;
    const char *names[3];
} GpmMetric;
typedef struct {
    unsigned version, count;
    GpmSample *one, *two;
    GpmMetric metrics[98]; /* as many as in the oldest header; newer ones have room for more */
} GpmMetricsGet;

_Static_assert(sizeof(GpmMetric) == 40, "nvmlGpmMetric_t");
_Static_assert(sizeof(Utilization) == 8, "nvmlUtilization_t");
_Static_assert(sizeof(MemoryV2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(Process) == 24, "nvmlProcessInfo_v2_t and _v3");
_Static_assert(sizeof(Sample) == 16, "nvmlSample_t");
_Static_assert(sizeof(Temperature) == 12, "nvmlTemperature_v1_t");
_Static_assert(sizeof(Share) == 32, "nvmlProcessUtilizationSample_t");
_Static_assert(sizeof(Field) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(Event) == 32, "nvmlEventData_t");

static Device devices[HANDLES];
static int opened = 0;
static Events events;
#ifndef WITHOUT_GPM
static int gpm_samples = 0;
#endif
static unsigned registered = 0; /* a bit for each device */

static Device *handle(int index) {
    devices[index].index = index;
    return &devices[index];
}

/* The script's text, read anew when the file has changed. */
static const char *script(void) {
    static char text[1 << 16];
    static struct stat known;
    const char *path = getenv("FAKE_NVML_SCRIPT");
    struct stat now;
    if (!path || stat(path, &now)) return "";
    if (now.st_ino != known.st_ino || now.st_size != known.st_size || CHANGED(now) != CHANGED(known)) {
        FILE *file = fopen(path, "r");
        size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[size] = 0;
        if (file) fclose(file);
        known = now;
    }
    return text;
}

/* The n-th line (from 0) that begins with `word`, and with ` index` unless index is -1; what follows in `rest`. */
static int find(const char *word, int index, int n, char *rest, size_t size) {
    char prefix[128];
    if (index < 0) snprintf(prefix, sizeof prefix, "%s ", word);
    else snprintf(prefix, sizeof prefix, "%s %d", word, index);
    size_t length = strlen(prefix);
    for (const char *line = script(); *line;) {
        size_t all = strcspn(line, "\n");
        if (!strncmp(line, prefix, length) && (index < 0 || all == length || line[length] == ' ') && n-- == 0) {
            snprintf(rest, size, "%.*s", (int)(all - length), line + length);
            return 1;
        }
        line += all + (line[all] == '\n');
    }
    return 0;
}

/* Whether a device, or the GPU that an instance is a part of, fell off the bus. */
static int is_lost(int index) {
    char rest[512];
    if (index < 0) return 0;
    return find("lost", index, 0, rest, sizeof rest) ||
           (index >= 10 && find("lost", index / 10 - 1, 0, rest, sizeof rest));
}

/* The code a function must answer; waits while the script says that it hangs. */
static int scripted(const char *function, int index) {
    char rest[512], name[128];
    for (int n = 0; find("hang", -1, n, rest, sizeof rest); n++)
        if (!strcmp(rest, function)) {
            usleep(2000);
            n = -1;
        }
    for (int n = 0; find("delay", -1, n, rest, sizeof rest); n++) {
        int ms = 0, device = -1;
        if (sscanf(rest, "%127s %d %d", name, &ms, &device) < 2 || strcmp(name, function)) continue;
        if (device < 0 || device == index) usleep((useconds_t)ms * 1000);
    }
    if (is_lost(index)) return GPU_IS_LOST;
    for (int n = 0; find("ret", -1, n, rest, sizeof rest); n++) {
        int code = 0, device = -1;
        if (sscanf(rest, "%127s %d %d", name, &code, &device) < 2 || strcmp(name, function)) continue;
        if (device < 0 || device == index) return code;
    }
    if (!opened && strcmp(function, "InitWithFlags")) return UNINITIALIZED;
    return SUCCESS;
}

#define ENTER(function, device)                                  \
    do {                                                         \
        int code = scripted(function, (device));                 \
        if (code != SUCCESS) return code;                        \
    } while (0)

static int number(const char *word, int index, uint64_t *value) {
    char rest[512];
    if (!find(word, index, 0, rest, sizeof rest)) return NOT_SUPPORTED;
    *value = strtoull(rest, NULL, 10);
    return SUCCESS;
}

static int text(const char *word, int index, char *into, unsigned size, const char *otherwise) {
    char rest[512];
    const char *source = otherwise;
    if (find(word, index, 0, rest, sizeof rest)) source = rest + strspn(rest, " ");
    snprintf(into, size, "%s", source);
    for (char *at = into; *at; at++)
        if (*at == '_') *at = ' ';
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ENTER("InitWithFlags", -1);
    opened++;
    return SUCCESS;
}

int nvmlShutdown(void) {
    ENTER("Shutdown", -1);
    opened--;
    return SUCCESS;
}

/* Never called by tfmon: on some systems the real one returns a bad pointer. */
const char *nvmlErrorString(int code) {
    (void)code;
    abort();
}

int nvmlSystemGetDriverVersion(char *into, unsigned size) {
    ENTER("SystemGetDriverVersion", -1);
    return text("driver", -1, into, size, "550.54.15");
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    char rest[512];
    ENTER("DeviceGetCount", -1);
    *count = find("count", -1, 0, rest, sizeof rest) ? (unsigned)atoi(rest) : 0;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= DEVICES) return INVALID_ARGUMENT;
    ENTER("DeviceGetHandleByIndex", (int)index);
    *device = handle((int)index);
    return SUCCESS;
}

int nvmlDeviceGetUUID(Device *device, char *into, unsigned size) {
    char otherwise[64];
    ENTER("DeviceGetUUID", device->index);
    snprintf(otherwise, sizeof otherwise, "GPU-%08x-0000-0000-0000-000000000000", device->index + 0xa0);
    return text("uuid", device->index, into, size, otherwise);
}

int nvmlDeviceGetName(Device *device, char *into, unsigned size) {
    ENTER("DeviceGetName", device->index);
    return text("name", device->index, into, size, "NVIDIA Fake");
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    char rest[512];
    ENTER("DeviceGetUtilizationRates", device->index);
    if (!find("util", device->index, 0, rest, sizeof rest)) return NOT_SUPPORTED;
    return sscanf(rest, "%u %u", &rates->gpu, &rates->memory) == 2 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetSamples(Device *device, int kind, unsigned long long since, int *type, unsigned *count,
                         Sample *samples) {
    char rest[512];
    unsigned room = *count, filled = 0;
    ENTER("DeviceGetSamples", device->index);
    if (kind != 1) return INVALID_ARGUMENT;
    *type = 1; /* unsigned int */
    if (find("zero", device->index, 0, rest, sizeof rest)) {
        *count = 0;
        return samples ? INVALID_ARGUMENT : SUCCESS;
    }
    for (int n = 0; find("sample", device->index, n, rest, sizeof rest); n++) {
        unsigned long long stamp = 0;
        unsigned percent = 0;
        if (sscanf(rest, "%llu %u", &stamp, &percent) != 2 || stamp <= since) continue;
        if (samples && filled < room) {
            samples[filled].stamp = stamp;
            samples[filled].value.ull = 0;
            samples[filled].value.u = percent;
        }
        filled++;
    }
    *count = filled;
    return filled ? SUCCESS : NOT_FOUND;
}

static int memory(Device *device, uint64_t *total, uint64_t *reserved, uint64_t *free_, uint64_t *used) {
    char rest[512];
    unsigned long long t, r, f, u;
    if (!find("mem", device->index, 0, rest, sizeof rest)) return NOT_SUPPORTED;
    if (sscanf(rest, "%llu %llu %llu %llu", &t, &r, &f, &u) != 4) return NOT_SUPPORTED;
    *total = t, *reserved = r, *free_ = f, *used = u;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *info) {
    ENTER("DeviceGetMemoryInfo_v2", device->index);
    if (info->version != 0x02000028) return VERSION_MISMATCH;
    return memory(device, &info->total, &info->reserved, &info->free, &info->used);
}

int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
    uint64_t value = 0;
    ENTER("DeviceGetTotalEnergyConsumption", device->index);
    int code = number("energy", device->index, &value);
    *millijoules = value;
    return code;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    uint64_t value = 0;
    ENTER("DeviceGetPowerUsage", device->index);
    int code = number("power", device->index, &value);
    *milliwatts = (unsigned)value;
    return code;
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) {
    uint64_t value = 0;
    ENTER("DeviceGetEnforcedPowerLimit", device->index);
    int code = number("limit", device->index, &value);
    *milliwatts = (unsigned)value;
    return code;
}

int nvmlDeviceGetTemperatureV(Device *device, Temperature *temperature) {
    uint64_t value = 0;
    ENTER("DeviceGetTemperatureV", device->index);
    if (temperature->version != 0x0100000C) return VERSION_MISMATCH;
    int code = number("temp", device->index, &value);
    temperature->celsius = (int)value;
    return code;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *celsius) {
    uint64_t value = 0;
    (void)sensor;
    ENTER("DeviceGetTemperature", device->index);
    int code = number("temp", device->index, &value);
    *celsius = (unsigned)value;
    return code;
}

static int processes(const char *function, Device *device, unsigned *count, Process *list) {
    char rest[512], bytes[32];
    unsigned room = *count, filled = 0;
    ENTER(function, device->index);
    for (int n = 0; find("proc", device->index, n, rest, sizeof rest); n++, filled++) {
        unsigned pid = 0;
        if (sscanf(rest, "%u %31s", &pid, bytes) != 2) return INVALID_ARGUMENT;
        if (!list || filled >= room) continue;
        list[filled].pid = pid;
        list[filled].used = strcmp(bytes, "na") ? strtoull(bytes, NULL, 10) : NOT_TOLD;
        list[filled].instance = list[filled].compute = 0xFFFFFFFF;
    }
    *count = filled;
    return filled > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
    return processes("DeviceGetComputeRunningProcesses_v3", device, count, list);
}

/* ---------------------------------------------------------------- clocks, link, errors */

static int numbers(const char *word, int index, int count, unsigned long long *values) {
    char rest[512], *at = rest, *end;
    if (!find(word, index, 0, rest, sizeof rest)) return NOT_SUPPORTED;
    for (int n = 0; n < count; n++, at = end) {
        values[n] = strtoull(at, &end, 10);
        if (end == at) return NOT_SUPPORTED;
    }
    return SUCCESS;
}

#define PICK(function, word, count, place)                                 \
    int nvml##function(Device *device, unsigned *value) {                  \
        unsigned long long values[4] = {0};                                \
        ENTER(#function, device->index);                                   \
        int code = numbers(word, device->index, count, values);            \
        *value = (unsigned)values[place];                                  \
        return code;                                                       \
    }

PICK(DeviceGetCurrPcieLinkGeneration, "link", 4, 0)
PICK(DeviceGetMaxPcieLinkGeneration, "link", 4, 1)
PICK(DeviceGetCurrPcieLinkWidth, "link", 4, 2)
PICK(DeviceGetMaxPcieLinkWidth, "link", 4, 3)

static int clock_of(const char *function, Device *device, int kind, int offset, unsigned *mhz) {
    unsigned long long values[4] = {0};
    ENTER(function, device->index);
    if (kind != 1 && kind != 2) return INVALID_ARGUMENT;
    int code = numbers("clock", device->index, 4, values);
    *mhz = (unsigned)values[offset + kind - 1];
    return code;
}

int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *mhz) {
    return clock_of("DeviceGetClockInfo", device, kind, 0, mhz);
}

int nvmlDeviceGetMaxClockInfo(Device *device, int kind, unsigned *mhz) {
    return clock_of("DeviceGetMaxClockInfo", device, kind, 2, mhz);
}

static int reasons(const char *function, Device *device, unsigned long long *bits) {
    char rest[512];
    ENTER(function, device->index);
    if (!find("reasons", device->index, 0, rest, sizeof rest)) return NOT_SUPPORTED;
    *bits = strtoull(rest, NULL, 16);
    return SUCCESS;
}

#ifndef WITHOUT_EVENT_REASONS
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *bits) {
    return reasons("DeviceGetCurrentClocksEventReasons", device, bits);
}
#endif

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *bits) {
    return reasons("DeviceGetCurrentClocksThrottleReasons", device, bits);
}

int nvmlDeviceGetPcieThroughput(Device *device, int direction, unsigned *kilobytes) {
    unsigned long long values[2] = {0};
    ENTER("DeviceGetPcieThroughput", device->index);
    int code = numbers("pcie", device->index, 2, values);
    *kilobytes = (unsigned)values[direction & 1];
    return code;
}

int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    char rest[512];
    ENTER("DeviceGetFieldValues", device->index);
    for (int place = 0; place < count; place++) {
        Field *field = &fields[place];
        field->code = NOT_SUPPORTED;
        for (int n = 0; find("field", device->index, n, rest, sizeof rest); n++) {
            unsigned id = 0;
            int type = 0;
            unsigned long long value = 0;
            if (sscanf(rest, "%u %d %llu", &id, &type, &value) != 3 || id != field->id) continue;
            field->type = type, field->code = SUCCESS, field->value.ull = value;
            if (type == 0) field->value.d = (double)value;
        }
    }
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, unsigned long long *errors) {
    ENTER("DeviceGetTotalEccErrors", device->index);
    if (type != 1 || counter != 0) return INVALID_ARGUMENT; /* uncorrected, since the driver was loaded */
    return numbers("ecc", device->index, 1, errors);
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    unsigned long long values[2] = {0};
    ENTER("DeviceGetRemappedRows", device->index);
    int code = numbers("rows", device->index, 2, values);
    *corrected = (unsigned)values[0], *uncorrected = (unsigned)values[1], *pending = *failed = 0;
    return code;
}

int nvmlDeviceGetProcessUtilization(Device *device, Share *shares, unsigned *count, unsigned long long since) {
    char rest[512];
    unsigned room = shares ? *count : 0, filled = 0;
    ENTER("DeviceGetProcessUtilization", device->index);
    if (!find("share", device->index, 0, rest, sizeof rest)) return NOT_SUPPORTED;
    for (int n = 0; find("share", device->index, n, rest, sizeof rest); n++) {
        Share share = {0};
        if (sscanf(rest, "%u %llu %u", &share.pid, &share.stamp, &share.sm) != 3 || share.stamp <= since) continue;
        if (filled < room) shares[filled] = share;
        filled++;
    }
    *count = filled;
    return filled > room ? INSUFFICIENT_SIZE : SUCCESS; /* with none at all it succeeds, as the real one does */
}

/* ---------------------------------------------------------------- instances of a GPU that is split up */

int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *later) {
    uint64_t mode = 0;
    ENTER("DeviceGetMigMode", device->index);
    int code = number("mig", device->index, &mode);
    *now = *later = (unsigned)mode;
    return code;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    ENTER("DeviceGetMaxMigDeviceCount", device->index);
    *count = SLOTS;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned slot, Device **instance) {
    char rest[512];
    int index = 10 * (device->index + 1) + (int)slot;
    ENTER("DeviceGetMigDeviceHandleByIndex", device->index);
    if (device->index >= DEVICES || slot >= SLOTS) return INVALID_ARGUMENT;
    if (!find("uuid", index, 0, rest, sizeof rest)) return NOT_FOUND;
    *instance = handle(index);
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    uint64_t value = 0;
    ENTER("DeviceGetGpuInstanceId", device->index);
    int code = number("gpi", device->index, &value);
    *id = (unsigned)value;
    return code;
}

/* ---------------------------------------------------------------- performance monitoring (GPM) */

#ifndef WITHOUT_GPM
int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *support) {
    char rest[512];
    ENTER("GpmQueryDeviceSupport", device->index);
    if (support->version != 1) return VERSION_MISMATCH;
    support->supported = find("gpm", device->index, 0, rest, sizeof rest) || find("part", device->index, 0, rest, sizeof rest);
    return SUCCESS;
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
    ENTER("GpmSampleAlloc", -1);
    *sample = calloc(1, sizeof **sample);
    gpm_samples++;
    return SUCCESS;
}

int nvmlGpmSampleFree(GpmSample *sample) {
    ENTER("GpmSampleFree", -1);
    free(sample);
    gpm_samples--;
    return SUCCESS;
}

/* For tests: how many samples are not released. */
int fakeGpmSamples(void) {
    return gpm_samples;
}

static unsigned long long taken = 0;

int nvmlGpmMigSampleGet(Device *device, unsigned instance, GpmSample *sample) {
    ENTER("GpmMigSampleGet", device->index);
    *sample = (GpmSample){device->index, (int)instance, ++taken};
    return SUCCESS;
}

int nvmlGpmSampleGet(Device *device, GpmSample *sample) {
    ENTER("GpmSampleGet", device->index);
    *sample = (GpmSample){device->index, -1, ++taken};
    return SUCCESS;
}

int nvmlGpmMetricsGet(GpmMetricsGet *asked) {
    const GpmSample *one = asked->one, *two = asked->two;
    char rest[512];
    ENTER("GpmMetricsGet", -1);
    if (asked->version != 1) return VERSION_MISMATCH;
    if (one->device != two->device || one->instance != two->instance || one->number >= two->number)
        return INVALID_ARGUMENT;
    for (unsigned place = 0; place < asked->count; place++) {
        GpmMetric *metric = &asked->metrics[place];
        metric->code = NOT_SUPPORTED;
        for (int n = 0; one->instance < 0 && find("part", one->device, n, rest, sizeof rest); n++) {
            unsigned id = 0;
            double value = 0;
            if (sscanf(rest, "%u %lf", &id, &value) == 2 && id == metric->id)
                metric->code = SUCCESS, metric->value = value;
        }
        for (int n = 0; find("gpm", one->device, n, rest, sizeof rest); n++) {
            int instance = -1;
            double percent = 0;
            if (sscanf(rest, "%d %lf", &instance, &percent) != 2 || instance != one->instance) continue;
            if (metric->id == 1) metric->code = SUCCESS, metric->value = percent;
            if (metric->id == 2) metric->code = SUCCESS, metric->value = percent / 2;
        }
    }
    return SUCCESS;
}
#endif

/* ---------------------------------------------------------------- XID messages */

static int messages(void) {
    char rest[512];
    int count = 0;
    while (find("xid", -1, count, rest, sizeof rest)) count++;
    return count;
}

int nvmlEventSetCreate(Events **set) {
    ENTER("EventSetCreate", -1);
    events.index = messages();
    registered = 0;
    *set = &events;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long kinds, Events *set) {
    (void)set;
    ENTER("DeviceRegisterEvents", device->index);
    if (kinds != 8) return NOT_SUPPORTED;
    registered |= 1u << device->index;
    return SUCCESS;
}

int nvmlEventSetWait_v2(Events *set, Event *event, unsigned milliseconds) {
    char rest[512];
    int index = 0;
    (void)milliseconds;
    ENTER("EventSetWait", -1);
    while (find("xid", -1, set->index, rest, sizeof rest)) {
        set->index++;
        memset(event, 0, sizeof *event);
        if (sscanf(rest, "%d %llu", &index, &event->data) != 2 || !(registered & 1u << index)) continue;
        event->device = handle(index);
        event->type = 8;
        return SUCCESS;
    }
    return TIMEOUT;
}

int nvmlEventSetFree(Events *set) {
    (void)set;
    ENTER("EventSetFree", -1);
    registered = 0;
    return SUCCESS;
}
