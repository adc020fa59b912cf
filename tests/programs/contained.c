/* Executes a command as a container's runtime does: in namespaces of its own, with few capabilities, as some user,
 * under seccomp profiles.
 *
 * contained [new | enter PID] [uid N] [cap NAME]... [nnp] [hidepid] [profile FILE]... -- command...
 *
 * `new` makes namespaces of processes and mounts, in which the command is process 1; `enter` joins those of a process.
 * Capabilities are those of a container, and `cap` adds one. Each profile becomes one filter, by libseccomp, which is
 * loaded at run time. A line of a profile:
 *
 *   default ACTION             what is done with all other calls
 *   include FILE               the lines of another profile, except its `default`
 *   ACTION name...             ACTION: allow, log, kill, trap, errno=N
 *   if CAP ACTION name...      only with this capability
 *   unless CAP ACTION name...  only without it
 *   masked ACTION name INDEX MASK VALUE
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* libseccomp's interface. */
struct comparison {
	unsigned index;
	int operator;
	uint64_t first, second;
};
enum { MASKED_EQUAL = 7, NNP_ATTRIBUTE = 3 };
static void *(*new_filter)(uint32_t);
static int (*resolve)(const char *);
static int (*add_rule)(void *, uint32_t, int, unsigned, const struct comparison *);
static int (*set_attribute)(void *, int, uint32_t);
static int (*load_filter)(void *);

static const char *const NAMES[] = {
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
};
enum { NAMES_COUNT = sizeof NAMES / sizeof NAMES[0] };
static const char *const USUAL[] = {
	"CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
	"NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
};
static uint64_t capabilities;

static void fail(const char *what)
{
	fprintf(stderr, "contained: %s: %s\n", what, errno ? strerror(errno) : "wrong");
	_exit(125);
}

static uint64_t capability(const char *name)
{
	for (int i = 0; i < NAMES_COUNT; i++)
		if (!strcmp(NAMES[i], name))
			return 1ull << i;
	errno = 0;
	fail(name);
	return 0;
}

static uint32_t action(const char *word)
{
	if (!strcmp(word, "allow"))
		return 0x7fff0000;
	if (!strcmp(word, "log"))
		return 0x7ffc0000;
	if (!strcmp(word, "trap"))
		return 0x00030000;
	if (!strcmp(word, "kill"))
		return 0x80000000;
	if (!strncmp(word, "errno=", 6))
		return 0x00050000 | (uint32_t)atoi(word + 6);
	errno = 0;
	fail(word);
	return 0;
}

static uint32_t default_action;
static void *filter;

static void add(uint32_t verdict, const char *name, unsigned count, const struct comparison *comparison)
{
	/* A rule with the default's verdict is not needed. An unknown name is a call of another architecture, or of a
	   newer kernel. */
	int number = resolve(name);
	if (number < 0 || verdict == default_action)
		return;
	int failed = add_rule(filter, verdict, number, count, comparison);
	if (failed && failed != -EEXIST) {
		errno = -failed;
		fail(name);
	}
}

static void read_profile(const char *path, int is_included)
{
	FILE *file = fopen(path, "re");
	if (!file)
		fail(path);
	char line[8192];
	while (fgets(line, sizeof line, file)) {
		char *rest = line, *word = strtok_r(rest, " \n", &rest);
		if (!word || *word == '#')
			continue;
		if (!strcmp(word, "default")) {
			word = strtok_r(rest, " \n", &rest);
			if (is_included)
				continue;
			default_action = action(word);
			if (!(filter = new_filter(default_action)))
				fail("seccomp_init");
			set_attribute(filter, NNP_ATTRIBUTE, 0);
			continue;
		}
		if (!strcmp(word, "include")) {
			char other[4096];
			const char *name = strtok_r(rest, " \n", &rest), *slash = strrchr(path, '/');
			snprintf(other, sizeof other, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name);
			read_profile(other, 1);
			continue;
		}
		int wanted = strcmp(word, "unless") != 0;
		if (!wanted || !strcmp(word, "if")) {
			uint64_t bit = capability(strtok_r(rest, " \n", &rest));
			if (((capabilities & bit) != 0) != wanted)
				continue;
			word = strtok_r(rest, " \n", &rest);
		}
		if (!strcmp(word, "masked")) {
			uint32_t verdict = action(strtok_r(rest, " \n", &rest));
			const char *name = strtok_r(rest, " \n", &rest);
			struct comparison masked = { 0, MASKED_EQUAL, 0, 0 };
			masked.index = (unsigned)strtoul(strtok_r(rest, " \n", &rest), 0, 0);
			masked.first = strtoull(strtok_r(rest, " \n", &rest), 0, 0);
			masked.second = strtoull(strtok_r(rest, " \n", &rest), 0, 0);
			add(verdict, name, 1, &masked);
			continue;
		}
		uint32_t verdict = action(word);
		while ((word = strtok_r(rest, " \n", &rest)))
			add(verdict, word, 0, 0);
	}
	fclose(file);
}

static void find_library(void)
{
	void *library = dlopen("libseccomp.so.2", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "contained: no libseccomp\n");
		_exit(126);
	}
	*(void **)&new_filter = dlsym(library, "seccomp_init");
	*(void **)&resolve = dlsym(library, "seccomp_syscall_resolve_name");
	*(void **)&add_rule = dlsym(library, "seccomp_rule_add_array");
	*(void **)&set_attribute = dlsym(library, "seccomp_attr_set");
	*(void **)&load_filter = dlsym(library, "seccomp_load");
	if (!new_filter || !resolve || !add_rule || !set_attribute || !load_filter)
		fail("libseccomp");
}

/* Keeps these capabilities alone, also over a change of the user. With no user given, root keeps them over execve. */
static void become(int uid)
{
	for (int i = 0; i < 64; i++)
		if (!(capabilities >> i & 1))
			prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	if (uid && (setgroups(0, 0) || setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) ||
	            setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid)))
		fail("another user");
	if (uid)
		return;
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = data[i].inheritable = (uint32_t)(capabilities >> 32 * i);
	data[0].inheritable = data[1].inheritable = 0;
	if (syscall(SYS_capset, &header, data))
		fail("capset");
}

static void join(const char *pid)
{
	static const char *const kinds[] = { "pid", "mnt" };
	int descriptors[2];
	for (int i = 0; i < 2; i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%s/ns/%s", pid, kinds[i]);
		if ((descriptors[i] = open(path, O_RDONLY | O_CLOEXEC)) < 0)
			fail(path);
	}
	for (int i = 0; i < 2; i++)
		if (setns(descriptors[i], 0))
			fail("setns");
}

int main(int argc, char **argv)
{
	const char *entered = 0, *profiles[8];
	int is_new = 0, uid = 0, no_new_privileges = 0, hides = 0, count = 0, i = 1;
	for (size_t k = 0; k < sizeof USUAL / sizeof USUAL[0]; k++)
		capabilities |= capability(USUAL[k]);
	for (; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "new"))
			is_new = 1;
		else if (!strcmp(argv[i], "nnp"))
			no_new_privileges = 1;
		else if (!strcmp(argv[i], "hidepid"))
			hides = 1;
		else if (i + 1 >= argc)
			fail(argv[i]);
		else if (!strcmp(argv[i], "enter"))
			entered = argv[++i];
		else if (!strcmp(argv[i], "uid"))
			uid = atoi(argv[++i]);
		else if (!strcmp(argv[i], "cap"))
			capabilities |= capability(argv[++i]);
		else if (!strcmp(argv[i], "profile") && count < 8)
			profiles[count++] = argv[++i];
		else
			fail(argv[i]);
	}
	if (i + 1 >= argc)
		fail("no command");
	find_library();
	if (is_new && unshare(CLONE_NEWPID | CLONE_NEWNS))
		fail("unshare");
	if (entered)
		join(entered);
	pid_t child = is_new || entered ? fork() : 0;
	if (child < 0)
		fail("fork");
	if (child > 0) {
		int status;
		while (waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
	if (is_new && (mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) ||
	               mount("proc", "/proc", "proc", 0, hides ? "hidepid=2" : 0)))
		fail("mounting /proc");
	/* As container runtimes do: with no_new_privs, the filter is installed after the capabilities are dropped,
	   otherwise before. */
	if (no_new_privileges)
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	for (int k = 0; k < count; k++) {
		read_profile(profiles[k], 0);
		if (no_new_privileges && k == 0)
			become(uid);
		int failed = load_filter(filter);
		if (failed) {
			errno = -failed;
			fail("seccomp_load");
		}
	}
	if (!no_new_privileges || !count)
		become(uid);
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	execvp(argv[i + 1], argv + i + 1);
	fail(argv[i + 1]);
}
