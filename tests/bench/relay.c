/* Copies bytes between clients and a server on this machine, with one wait, one read and one write
 * for each chunk: what a process in between takes at the least. `relay PORT` prints its own port. */

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 65536, AT_ONCE = 64 };

static int other[MOST]; /* The connection that the bytes of a connection go to; 0: closed. */

static void watch(int poll, int socket_) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = socket_};
    epoll_ctl(poll, EPOLL_CTL_ADD, socket_, &event);
}

static void meet(int poll, int listening, const struct sockaddr_in *server) {
    int client = accept(listening, NULL, NULL), upstream = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (client < 0 || upstream < 0 || client >= MOST || upstream >= MOST) exit(1);
    if (connect(upstream, (const struct sockaddr *)server, sizeof *server)) exit(1);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(upstream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    other[client] = upstream, other[upstream] = client;
    watch(poll, client), watch(poll, upstream);
}

static void copy(int from) {
    static char bytes[MOST];
    int to = other[from];
    if (!to) return; /* closed since the wait */
    ssize_t size = read(from, bytes, sizeof bytes);
    if (size > 0 && write(to, bytes, size) == size) return; /* these block until all is sent */
    other[from] = other[to] = 0;
    close(from), close(to);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in server = own;
    socklen_t size = sizeof own;
    server.sin_port = htons(atoi(arguments[1]));
    int listening = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
    if (bind(listening, (struct sockaddr *)&own, sizeof own) || listen(listening, 1024)) return 1;
    getsockname(listening, (struct sockaddr *)&own, &size);
    printf("%d\n", ntohs(own.sin_port));
    fflush(stdout);
    watch(poll, listening);
    struct epoll_event events[AT_ONCE];
    for (;;) {
        int ready = epoll_wait(poll, events, AT_ONCE, -1);
        for (int n = 0; n < ready; n++)
            if (events[n].data.fd == listening) meet(poll, listening, &server);
            else copy(events[n].data.fd);
    }
}
