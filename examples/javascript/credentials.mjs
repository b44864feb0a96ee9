// By what an application knows its relay, and by what it proves who it is. The variables are those of the Python client
// and of `relay`: RELAY_CA, RELAY_CERTIFICATE, RELAY_KEY, RELAY_TOKEN_FILE, RELAY_SERVER_NAME. All files are PEM.

import { readFileSync } from "node:fs";
import grpc from "@grpc/grpc-js";

const LOCAL = /^(unix:.*|(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?)$/;

/**
 * What a client of `target` is made with, behind the target: `new api.TimerService(target, ...dial(target, CHANNEL))`.
 *
 * Certificates are read now. The token is read for each call and each stream, since Kubernetes replaces it.
 */
export function dial(target, options, env = process.env) {
  const { RELAY_CA: ca, RELAY_CERTIFICATE: certificate, RELAY_KEY: key, RELAY_TOKEN_FILE: tokenFile } = env;
  if (Boolean(certificate) !== Boolean(key)) throw new Error("RELAY_CERTIFICATE and RELAY_KEY go together; give both");
  if (certificate && !ca) throw new Error("RELAY_CA must be given, since RELAY_CERTIFICATE is");
  if (tokenFile && !ca && !LOCAL.test(target)) {
    throw new Error(`RELAY_CA must be given: a token for ${target} would go over the network in the clear`);
  }
  const more = { ...options };
  if (env.RELAY_SERVER_NAME) more["grpc.ssl_target_name_override"] = env.RELAY_SERVER_NAME;
  if (tokenFile) more.interceptors = [bearer(tokenFile)];
  if (!ca) return [grpc.credentials.createInsecure(), more];
  const own = certificate ? [readFileSync(key), readFileSync(certificate)] : [null, null];
  return [grpc.credentials.createSsl(ca === "system" ? null : readFileSync(ca), ...own), more];
}

/** An interceptor that sends the token of a file with each call. */
function bearer(file) {
  return (options, next) =>
    new grpc.InterceptingCall(next(options), {
      start(metadata, listener, go) {
        metadata.set("authorization", `Bearer ${readFileSync(file, "utf8").trim()}`);
        go(metadata, listener);
      },
    });
}
