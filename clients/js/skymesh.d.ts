export interface Packet { type: "packet"; an: number; xml?: string; base64?: string; filtered?: false }
export interface Omitted { type: "omitted"; an: number; xml?: string; base64?: string; filtered?: false }
export interface Gap { type: "gap"; after: number; until: number }
export interface Started { type: "started"; position: number }
export interface Switched { type: "switched"; position: number; query: string }
export interface Problem { type: "error"; message: string }

export interface Options {
  /** XPath 1.0; empty or absent for everything. */
  query?: string;
  namespaces?: Record<string, string>;
  /** Resume behind this AN. */
  after?: number;
  token?: string;
  /** Where the environment has none, such as Node 20: that of the package "ws". */
  WebSocket?: unknown;
  onOpen?: () => void;
  onPacket?: (packet: Packet) => void;
  /** A packet that came too late for its place. */
  onOmitted?: (packet: Omitted) => void;
  onGap?: (gap: Gap) => void;
  onStarted?: (started: Started) => void;
  onSwitched?: (switched: Switched) => void;
  onError?: (problem: Problem) => void;
  onClose?: (event: { code: number; reason: string }) => void;
}

export declare class Stream {
  /** The AN behind which everything that matches was handed over; null before the stream has started. */
  readonly position: number | null;
  readonly isClosed: boolean;
  changeQuery(query: string, namespaces?: Record<string, string>): void;
  close(): void;
}

export declare function connect(gateway: string | URL, stream: string, options?: Options): Stream;
