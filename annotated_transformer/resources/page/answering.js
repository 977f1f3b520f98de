// The worker's side of `connect`.
"use strict";
// {id, method, given} is answered by {id, result} or {id, error}, and on the way by {id, progress}; "stop" ends what
// takes long.
function answering(engine, post) {
  return async ({ data: { id, method, given } }) => {
    if (method === "stop") { engine.job = null; return; }
    try {
      post({ id, result: await engine[method](given, progress => post({ id, progress })) });
    } catch (error) {
      post({ id, error: error.message });
    }
  };
}
