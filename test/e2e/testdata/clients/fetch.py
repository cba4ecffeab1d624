# Fetches a URL with what Python has of its own, and with requests, which comes
# with pip; and twice over one connection.
import http.client
import sys
import urllib.parse
import urllib.request

url = sys.argv[1]
print("urllib:", urllib.request.urlopen(url).read().decode(), end="")
try:
    import requests
except ImportError:
    from pip._vendor import requests
print("requests:", requests.get(url).text, end="")
connection = http.client.HTTPSConnection(urllib.parse.urlsplit(url).hostname)
for n in range(2):
    connection.request("GET", "/")
    print("kept", n, connection.getresponse().read().decode(), end="")
    if n == 0:
        first = connection.sock
print("one connection:", first is connection.sock)
