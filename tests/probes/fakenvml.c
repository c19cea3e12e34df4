/* A stand-in for libnvidia-ml.so.1, so that the real pynvml runs in tests without a GPU.
 *
 * What it answers is written in the text file that FAKE_NVML_SCRIPT names, read anew at each call, one
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
 *   ret FUNCTION CODE [I]           the function (without "nvml") answers CODE, for one device or for all
 *   hang FUNCTION                   the function does not return while this line is there
 *
 * Build with -DWITHOUT_V3 for a driver that lacks the third version of the process list.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    VERSION_MISMATCH = 25,
};
#define DEVICES 8
#define NOT_TOLD UINT64_MAX

typedef struct { int index; } Device;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { uint64_t total, free, used; } Memory;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } MemoryV2;
typedef struct { unsigned pid; uint64_t used; unsigned instance, compute; } Process;
typedef union { double d; unsigned u; unsigned long long ull; } Value;
typedef struct { uint64_t stamp; Value value; } Sample;
typedef struct { unsigned version; int sensor; int celsius; } Temperature;

_Static_assert(sizeof(Utilization) == 8, "nvmlUtilization_t");
_Static_assert(sizeof(Memory) == 24, "nvmlMemory_t");
_Static_assert(sizeof(MemoryV2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(Process) == 24, "nvmlProcessInfo_v2_t and _v3");
_Static_assert(sizeof(Sample) == 16, "nvmlSample_t");
_Static_assert(sizeof(Temperature) == 12, "nvmlTemperature_v1_t");

static Device devices[DEVICES] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
static int opened = 0;

/* The n-th line (from 0) that begins with `word`, and with ` index` unless index is -1; what follows in `rest`. */
static int find(const char *word, int index, int n, char *rest, size_t size) {
    const char *path = getenv("FAKE_NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], prefix[128];
    int found = 0;
    if (!file) return 0;
    if (index < 0) snprintf(prefix, sizeof prefix, "%s ", word);
    else snprintf(prefix, sizeof prefix, "%s %d", word, index);
    while (!found && fgets(line, sizeof line, file)) {
        size_t length = strlen(prefix);
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, prefix, length)) continue;
        if (index >= 0 && line[length] != ' ' && line[length] != 0) continue;
        if (n-- > 0) continue;
        snprintf(rest, size, "%s", line + length);
        found = 1;
    }
    fclose(file);
    return found;
}

/* The code a function must answer; waits while the script says that it hangs. */
static int scripted(const char *function, int index) {
    char rest[512], name[128];
    for (int n = 0; find("hang", -1, n, rest, sizeof rest); n++)
        if (!strcmp(rest, function)) {
            usleep(2000);
            n = -1;
        }
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
    *device = &devices[index];
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

int nvmlDeviceGetMemoryInfo(Device *device, Memory *info) {
    uint64_t reserved = 0;
    ENTER("DeviceGetMemoryInfo", device->index);
    int code = memory(device, &info->total, &reserved, &info->free, &info->used);
    info->used += reserved;
    return code;
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

int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned *count, Process *list) {
    return processes("DeviceGetComputeRunningProcesses_v2", device, count, list);
}

#ifndef WITHOUT_V3
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *list) {
    return processes("DeviceGetComputeRunningProcesses_v3", device, count, list);
}
#endif
