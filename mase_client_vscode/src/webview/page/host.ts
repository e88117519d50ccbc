/** The page's side of `panel.ts`: messages to and from the extension, and the page's stored state. */

interface VsCodeApi {
  postMessage(message: unknown): void;
  getState(): unknown;
  setState(state: unknown): void;
}

declare function acquireVsCodeApi(): VsCodeApi;

/** `State` must be plain data; it outlives the page, while its tab is hidden and when the window is reloaded. */
export class Host<ToPage extends { type: string }, FromPage extends { type: string }, State> {
  private readonly api = acquireVsCodeApi();

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
