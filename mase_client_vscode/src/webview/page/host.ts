/** The page's side of `panel.ts`: messages to and from its host, and the page's stored state. */

interface VsCodeApi {
  postMessage(message: unknown): void;
  getState(): unknown;
  setState(state: unknown): void;
}

declare const acquireVsCodeApi: (() => VsCodeApi) | undefined;

/** In a frame of the page of `mase-server view` that page is the host, and nothing is stored. */
function ownApi(): VsCodeApi {
  return { postMessage: (message) => parent.postMessage(message, '*'), getState: () => undefined, setState: () => undefined };
}

/** `State` must be plain data; it outlives the page, while its tab is hidden and when the window is reloaded. */
export class Host<ToPage extends { type: string }, FromPage extends { type: string }, State> {
  private readonly api = typeof acquireVsCodeApi === 'function' ? acquireVsCodeApi() : ownApi();

  /** Listen, then report that this page is ready. */
  connect(listen: (message: ToPage) => void): void {
    addEventListener('message', ({ data }: MessageEvent<ToPage>) => listen(data));
    this.api.postMessage({ type: 'ready' });
  }

  post(message: FromPage): void {
    this.api.postMessage(message);
  }

  remember(state: State): void {
    this.api.setState(state);
  }

  /** The stored state, undefined in a new page. */
  get remembered(): State | undefined {
    return this.api.getState() as State | undefined;
  }
}
