/** The graph's page. */
import '../../webview/page/theme.css';
