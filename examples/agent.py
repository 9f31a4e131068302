#!/usr/bin/env python3
"""An agent: a model decides, toold runs. Needs nothing but Python.

    MODEL_KEY=KEY examples/agent.py MODEL DIRECTORY 'the task'
"""
import http.client, json, os, socket, sys, time, urllib.request

class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ.get("TOOLD_SOCKET", "/run/toold/toold.sock"))

def toold(method, path, body=None, token=None, attempts=1):
    headers = {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + token} if token else {})
    for attempt in range(attempts):
        try:
            connection = Connection("toold")
            connection.request(method, "/v1" + path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            problem = json.loads(answer.read())
            if answer.status != 503:
                return problem
        except (OSError, http.client.HTTPException, ValueError) as e:
            problem = {"output": f"toold does not answer ({e}): say so and stop", "is_error": True}
        time.sleep(1 if attempt + 1 < attempts else 0)
    return problem

def ask(model, messages, tools):
    url = os.environ.get("MODEL_URL", "https://api.anthropic.com/v1/messages")
    body = {"model": model, "max_tokens": 8192, "tools": tools, "messages": messages}
    headers = {"Content-Type": "application/json", "anthropic-version": "2023-06-01",
               "x-api-key": os.environ.get("MODEL_KEY", "")}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=600))["content"]

def run(session, call):
    answer = toold("POST", f"/sessions/{session['id']}/calls", token=session["token"], attempts=60,
                   body={"key": call["id"], "tool": call["name"], "input": call["input"]})
    print(f"{call['name']} {json.dumps(call['input'])}\n{answer['output']}\n", file=sys.stderr)
    return {"type": "tool_result", "tool_use_id": call["id"],
            "content": answer["output"], "is_error": answer["is_error"]}

def main(model, directory, task):
    session = toold("POST", "/sessions", {"worktree": {"source": os.path.realpath(directory)}, "token": True})
    if "id" not in session:
        sys.exit(session["output"])
    try:
        tools = toold("GET", "/tools?format=anthropic")["items"]
        messages = [{"role": "user", "content": task}]
        while True:
            content = ask(model, messages, tools)
            if not (calls := [part for part in content if part["type"] == "tool_use"]):
                return print("".join(part.get("text", "") for part in content))
            messages += [{"role": "assistant", "content": content},
                         {"role": "user", "content": [run(session, call) for call in calls]}]
    finally:
        end = toold("DELETE", "/sessions/" + session["id"])
        print("files to look at first:", end.get("worktree", {}).get("sensitive", "none"), file=sys.stderr)

main(*sys.argv[1:])
