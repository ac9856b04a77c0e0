/* Hosts on one machine, joined by a network of chosen latency and bandwidth: see hosts --help.
 *
 * Each host has its own network and UTS namespace, so programs see another machine: its host name,
 * its loopback, and one interface, eth0. A sleeping child of this program holds each host. The
 * namespaces have no names and no files, so they vanish with their last process, and two runs
 * cannot collide. This program stays on the first host and carries the packets (network.c).
 *
 * Open MPI starts a daemon on each host through an agent, by default ssh. OMPI_MCA_plm_rsh_agent
 * names this program instead: `hosts --enter ADDRESS COMMAND` runs the command in the namespaces
 * of the host with that address. */
#include "network.h"

#include <argp.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <math.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEVICE     "eth0"
#define HOLDERS    "WEFT_HOSTS" /* environment: the process that holds each host, from the first */
#define QUEUE      10000 /* packets between a host and the switch, as many as may ever wait */
#define GRACE_NS   INT64_C(10000000000)
#define LINGER_NS  INT64_C(20000000)
#define EXIT_USAGE 2

typedef struct arguments {
    int n_hosts;
    double latency_ms, gbit;
    char **command;
} arguments;

typedef struct hosts {
    network net;
    pid_t holders[NETWORK_MAX_HOSTS];
    struct stat namespaces[NETWORK_MAX_HOSTS];
    pid_t carrier, command;
    int status; /* exit status of the command */
} hosts;

/* ---- Arguments ---- */

static double number(const char *text, const char *what, double max, struct argp_state *state)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0 || value > max)
        argp_error(state, "%s takes a number from 0 to %g, not \"%s\"", what, max, text);
    return value;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    arguments *a = state->input;
    switch (key) {
    case 'l':
        a->latency_ms = number(text, "--latency", 10000, state);
        return 0;
    case 'g':
        a->gbit = number(text, "--gbit", 1000, state);
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0) {
            a->n_hosts = (int)number(text, "N", NETWORK_MAX_HOSTS, state);
        } else {
            a->command = state->argv + state->next - 1;
            state->next = state->argc;
        }
        return 0;
    case ARGP_KEY_END:
        if (a->n_hosts < 1) argp_error(state, "give the number of hosts, from 1");
        if (!a->command) argp_error(state, "give a command, after the number of hosts");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"latency", 'l', "MS", 0, "One-way latency between two hosts, in milliseconds (default 0)", 0},
    {"gbit", 'g', "G", 0, "Gbit/s of each host's link in each direction (default: no limit)", 0},
    {0},
};

static const char doc[] =
    "Run COMMAND on the first of N hosts, which are network namespaces of this machine. Needs "
    "root.\vmpirun starts its ranks on the N hosts in turn:\n\n"
    "    hosts 4 --latency 0.5 --gbit 1 -- mpirun -n 4 build/tests/pingpong\n\n"
    "Host I is named hostI and has the address " NETWORK_ADDRESS "I. Between two hosts a packet "
    "takes MS (a round trip takes twice MS), plus its bytes over the rate. All traffic of a host "
    "shares its link; both directions have the full rate. The rate counts Ethernet frames of "
    "1500 bytes, so TCP carries at most 94 % of it. Hosts share the processors and the files of "
    "this machine, and reach nothing but each other. All is gone when COMMAND ends. The exit "
    "status is that of COMMAND.";

static const struct argp arguments_of_hosts = {
    options, parse, "N -- COMMAND [ARGUMENT...]", doc, NULL, NULL, NULL};

/* ---- Hosts ---- */

__attribute__((format(printf, 1, 2))) static bool fail(const char *format, ...)
{
    int error = errno;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "hosts: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, ": %s\n", strerror(error));
    va_end(args);
    return false;
}

/* The TUN device of this process's network namespace. -1: an error, reported. */
static int open_device(void)
{
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_name = DEVICE};
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    if (device < 0) {
        fail("cannot open /dev/net/tun");
    } else if (ioctl(device, TUNSETIFF, &request) != 0 ||
               ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO_ECN) != 0) {
        fail("cannot make a TUN device");
        close(device);
        device = -1;
    }
    return device;
}

static bool start_interface(const char *name, const char *address)
{
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = control >= 0;
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (good && address) {
        struct sockaddr_in in = {.sin_family = AF_INET};
        in.sin_addr.s_addr = inet_addr(address);
        memcpy(&request.ifr_addr, &in, sizeof in);
        good = ioctl(control, SIOCSIFADDR, &request) == 0;
        in.sin_addr.s_addr = inet_addr("255.255.255.0");
        memcpy(&request.ifr_netmask, &in, sizeof in);
        good = good && ioctl(control, SIOCSIFNETMASK, &request) == 0;
        request.ifr_qlen = QUEUE;
        good = good && ioctl(control, SIOCSIFTXQLEN, &request) == 0;
    }
    request.ifr_flags = IFF_UP;
    good = good && ioctl(control, SIOCSIFFLAGS, &request) == 0;
    if (!good) fail("cannot start the interface %s", name);
    if (control >= 0) close(control);
    return good;
}

/* Sets how TCP behaves on the host that this process is on. */
static bool set_tcp(void)
{
    static const char *const settings[][2] = {
        {"tcp_congestion_control", "reno"},   /* always there; no pauses and pacing, as BBR has */
        {"tcp_slow_start_after_idle", "0"},   /* computing between exchanges costs no bandwidth */
        {"tcp_early_retrans", "0"},           /* nothing is lost, so a late answer is not a loss */
        {"tcp_rmem", "4096 131072 67108864"}, /* room for bandwidth x round trip */
        {"tcp_wmem", "4096 131072 67108864"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char path[80];
        snprintf(path, sizeof path, "/proc/sys/net/ipv4/%s", settings[i][0]);
        int file = open(path, O_WRONLY | O_CLOEXEC);
        bool good = file >= 0 && write(file, settings[i][1], strlen(settings[i][1])) > 0;
        if (!good) fail("cannot write %s", path);
        if (file >= 0) close(file);
        if (!good) return false;
    }
    return true;
}

/* Moves this process into a new host. */
static bool make_host(hosts *h, int index)
{
    char name[16], address[32];
    int length = snprintf(name, sizeof name, "host%d", index + 1);
    snprintf(address, sizeof address, NETWORK_ADDRESS "%d", index + 1);
    if (unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0) return fail("cannot make a network namespace");
    if (sethostname(name, (size_t)length) != 0) return fail("cannot name a host");
    if (stat("/proc/self/ns/net", &h->namespaces[index]) != 0) return fail("cannot read /proc");
    h->net.devices[index] = open_device();
    return h->net.devices[index] >= 0 && start_interface("lo", NULL) &&
           start_interface(DEVICE, address) && set_tcp();
}

static bool is_in_host(const hosts *h, const char *pid)
{
    char path[300];
    struct stat space;
    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    if (stat(path, &space) != 0) return false;
    for (int i = 0; i < h->net.n_hosts; i++)
        if (space.st_ino == h->namespaces[i].st_ino && space.st_dev == h->namespaces[i].st_dev)
            return true;
    return false;
}

static bool is_own(const hosts *h, pid_t pid)
{
    if (pid == h->carrier) return true;
    for (int i = 0; i < h->net.n_hosts; i++)
        if (h->holders[i] == pid) return true;
    return false;
}

/* Counts the processes that the command left on the hosts, and sends each the signal, or none if
 * it is 0. */
static int signal_rest(const hosts *h, int signal)
{
    int count = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid <= 0 || is_own(h, pid) || !is_in_host(h, entry->d_name)) continue;
        count++;
        if (signal) kill(pid, signal);
    }
    if (processes) closedir(processes);
    return count;
}

/* A process that stays in this host. When its parent has died, however that happened, it kills what
 * the command left there. */
static pid_t hold_host(hosts *h, int index)
{
    pid_t parent = getpid(), holder = fork();
    if (holder != 0) return holder;
    int signal;
    sigset_t death;
    sigemptyset(&death);
    sigaddset(&death, SIGCHLD); /* blocked, as in the parent */
    prctl(PR_SET_PDEATHSIG, SIGCHLD);
    while (getppid() == parent) sigwait(&death, &signal);
    h->holders[index] = getpid();
    signal_rest(h, SIGKILL);
    _exit(0);
}

/* Makes the hosts, from the last to the first, where this process stays. */
static bool make_hosts(hosts *h, const arguments *a)
{
    h->carrier = getpid();
    h->net.n_hosts = a->n_hosts;
    h->net.latency_ns = llround(a->latency_ms * 1e6);
    h->net.ns_per_byte = a->gbit > 0 ? 8 / a->gbit : 0;
    for (int i = a->n_hosts - 1; i >= 0; i--) {
        if (!make_host(h, i)) return false;
        h->holders[i] = hold_host(h, i);
        if (h->holders[i] < 0) return fail("cannot start a process");
    }
    return true;
}

/* ---- Open MPI ---- */

/* The path of a file that lives as long as this process, with the hosts' addresses. */
static bool make_hostfile(int n_hosts, char *path, size_t size)
{
    int file = memfd_create("hostfile", MFD_CLOEXEC);
    for (int i = 1; file >= 0 && i <= n_hosts; i++)
        if (dprintf(file, NETWORK_ADDRESS "%d slots=1\n", i) < 0) return fail("no memory");
    snprintf(path, size, "/proc/%d/fd/%d", (int)getpid(), file);
    return file >= 0 || fail("cannot make a file of hosts");
}

static bool set_environment(const hosts *h)
{
    char hostfile[64], agent[4200] = "", holders[NETWORK_MAX_HOSTS * 12] = "";
    ssize_t length = readlink("/proc/self/exe", agent, 4096);
    if (length < 0) return fail("cannot read /proc/self/exe");
    snprintf(agent + length, sizeof agent - (size_t)length, " --enter");
    if (!make_hostfile(h->net.n_hosts, hostfile, sizeof hostfile)) return false;
    for (int i = 0, at = 0; i < h->net.n_hosts; i++)
        at += snprintf(holders + at, sizeof holders - (size_t)at, "%d ", (int)h->holders[i]);

    const char *const variables[][2] = {
        {HOLDERS, holders},
        {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
        {"OMPI_MCA_plm", "rsh"},
        {"OMPI_MCA_plm_rsh_agent", agent},
        {"OMPI_MCA_plm_rsh_no_tree_spawn", "1"},
        {"OMPI_MCA_orte_default_hostfile", hostfile},
        {"OMPI_MCA_oob_tcp_if_include", NETWORK_ADDRESS "0/24"},
        {"OMPI_MCA_rmaps_base_mapping_policy", "node"}, /* ranks on the hosts in turn */
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"OMPI_MCA_mpi_yield_when_idle", "1"},
        {"OMPI_MCA_pml", "ob1"},
        {"OMPI_MCA_btl", "self,vader,tcp"}, /* vader: shared memory, among ranks of one host */
        {"OMPI_MCA_btl_tcp_if_include", NETWORK_ADDRESS "0/24"},
        {"OMPI_MCA_btl_tcp_sndbuf", "0"}, /* 0: the kernel chooses and adapts */
        {"OMPI_MCA_btl_tcp_rcvbuf", "0"},
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (setenv(variables[i][0], variables[i][1], 1) != 0) return fail("no memory");
    return true;
}

/* hosts --enter ADDRESS COMMAND...: the words of the command are the text of a shell's line, as
 * those of ssh are. */
static int enter(int argc, char **argv)
{
    const char *list = getenv(HOLDERS), *dot = argc > 3 ? strrchr(argv[2], '.') : NULL;
    long holder = 0;
    if (!list || !dot) {
        fprintf(stderr, "hosts: --enter is for mpirun, started by hosts\n");
        return EXIT_USAGE;
    }
    for (int i = atoi(dot + 1); i > 0; i--) holder = strtol(list, (char **)&list, 10);
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%ld/ns/%s", holder, i == 0 ? "uts" : "net");
        int space = open(path, O_RDONLY | O_CLOEXEC);
        if (space < 0 || setns(space, 0) != 0) {
            fail("cannot enter %s", argv[2]);
            return 1;
        }
    }
    char *line = NULL;
    size_t size;
    FILE *text = open_memstream(&line, &size);
    for (int i = 3; text && i < argc; i++) fprintf(text, "%s ", argv[i]);
    if (text && fclose(text) == 0) execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    fail("cannot start a shell");
    return 1;
}

/* ---- Running ---- */

static bool start_command(hosts *h, char **command, const sigset_t *mask)
{
    h->command = fork();
    if (h->command == 0) {
        sigprocmask(SIG_SETMASK, mask, NULL);
        execvp(command[0], command);
        fail("cannot run %s", command[0]);
        _exit(127);
    }
    return h->command > 0 || fail("cannot start a process");
}

/* Handles the signals that arrived; what runs at *kill_ns is killed. A second signal ends the wait.
 */
static void handle_signals(hosts *h, int signals, int64_t *kill_ns)
{
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) {
            if (h->command > 0) kill(h->command, SIGTERM);
            *kill_ns = network_clock_ns() + (*kill_ns == INT64_MAX ? GRACE_NS : 0);
        }
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == h->command) {
            h->command = 0;
            h->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            *kill_ns = network_clock_ns() + GRACE_NS;
        }
}

/* Carries packets until the command and all that it started on the hosts have ended. From the end
 * of the command, or a signal to this program, they have GRACE_NS. */
static void run(hosts *h, int signals)
{
    int64_t kill_ns = INT64_MAX;
    while (h->command > 0 || signal_rest(h, 0) > 0) {
        int64_t now = network_clock_ns();
        bool late = now >= kill_ns;
        if (late) signal_rest(h, SIGKILL);
        int64_t until_ns = h->command > 0 && !late ? kill_ns : now + LINGER_NS;
        if (network_run(&h->net, signals, until_ns)) handle_signals(h, signals, &kill_ns);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--enter") == 0) return enter(argc, argv);
    arguments a = {0};
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&arguments_of_hosts, argc, argv, ARGP_IN_ORDER, NULL, &a);
    if (geteuid() != 0) {
        fprintf(stderr, "hosts: only root can make network namespaces\n");
        return 1;
    }
    sigset_t caught, before;
    sigemptyset(&caught);
    sigaddset(&caught, SIGCHLD);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    sigaddset(&caught, SIGHUP);
    sigprocmask(SIG_BLOCK, &caught, &before);
    int signals = signalfd(-1, &caught, SFD_NONBLOCK | SFD_CLOEXEC), status = 1;
    hosts *h = calloc(1, sizeof *h);
    if (signals < 0 || !h) {
        fail("cannot start");
    } else if (make_hosts(h, &a) && set_environment(h) && start_command(h, a.command, &before)) {
        /* Packets go out on time although the ranks keep the processors busy. */
        sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1});
        run(h, signals);
        status = h->status;
        network_free(&h->net);
    }
    free(h);
    return status;
}
