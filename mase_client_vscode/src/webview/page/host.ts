/** The page's side of `panel.ts`: messages to and from the extension, and what the page remembers of itself. */

interface VsCodeApi {
  postMessage(message: unknown): void;
  getState(): unknown;
  setState(state: unknown): void;
}

declare function acquireVsCodeApi(): VsCodeApi;

/** `State` has to be plain data; it outlives the page, while its tab is hidden and when the window is loaded again. */
export class Host<ToPage extends { type: string }, FromPage extends { type: string }, State> {
  private readonly api = acquireVsCodeApi();

  /** Listen, then say that this page is ready. */
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

  /** What was remembered last, undefined in a new page. */
  get remembered(): State | undefined {
    return this.api.getState() as State | undefined;
  }
}
