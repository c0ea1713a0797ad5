/* The client of the Mangosteen paper (ATC '24, section 6.4): sends arrays of bytes to add_server, and says what it answers.
 *   add_client SOCKET COUNT    COUNT arrays of 100 bytes, of which each answer is a line "LENGTH SUM"; 0: asks only
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int count, char **arguments) {
    struct {
        uint32_t length;
        unsigned char bytes[100];
    } request;
    struct {
        uint64_t length, sum;
    } answer;
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (count != 3 || strlen(arguments[1]) >= sizeof address.sun_path) {
        fprintf(stderr, "usage: add_client SOCKET COUNT\n");
        return 2;
    }
    strcpy(address.sun_path, arguments[1]);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
        perror(arguments[1]);
        return 1;
    }
    long turns = atol(arguments[2]);
    memset(request.bytes, 1, sizeof request.bytes);
    request.length = turns > 0 ? sizeof request.bytes : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    do {
        size_t bytes = sizeof request.length + request.length;
        if (write(server, &request, bytes) != (ssize_t)bytes) return 1;
        if (recv(server, &answer, sizeof answer, MSG_WAITALL) != (ssize_t)sizeof answer) return 1;
        printf("%llu %llu\n", (unsigned long long)answer.length, (unsigned long long)answer.sum);
    } while (--turns > 0);
    return 0;
}
